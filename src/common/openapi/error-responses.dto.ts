import { ApiSchema, ApiProperty } from '@nestjs/swagger';
import type { ValidationItem } from '../errors.js';
import { OneOf, Integer } from './decorators.js';

/** A sentence: what was done, or why not. */
@ApiSchema({ name: 'Detail', description: 'A sentence: what was done, or why not.' })
export class DetailResponse {
  detail!: string;
}

/** A step of the way to a field. */
@ApiSchema({
  name: 'LocationStep',
  description:
    'The name of a member, or an index in a list. In an object with free keys, such as `metadata` and `env_vars`, the position of the entry, from 0: keys that a client made up are not repeated.',
})
@OneOf(() => [
  { name: 'LocationMember', schema: { type: 'string' } },
  { name: 'LocationIndex', schema: { type: 'integer', minimum: 0 } },
])
class LocationStep {}

/** One thing that is wrong with a body. */
@ApiSchema({ name: 'ValidationItem', description: 'One thing that is wrong with a body.' })
class ValidationItemResponse implements ValidationItem {
  /**
   * What is wrong: `missing` for an absent field, else a stable code such as `string_type`, `int_type`,
   * `greater_than_equal`, `string_too_long`, `enum`, `duplicate`, `reserved_name`.
   * @example "missing"
   */
  type!: string;

  /** Where: `body`, then the way to the field. */
  @ApiProperty({ type: [LocationStep], minItems: 1, example: ['body', 'name'] })
  loc!: (string | number)[];

  /**
   * For people. Never repeats the submitted value.
   * @example "Field required"
   */
  msg!: string;
}

/** A body of the wrong shape. */
@ApiSchema({
  name: 'ValidationFailure',
  description: 'Fields are missing or of the wrong type.',
})
export class ValidationFailureResponse {
  @ApiProperty({ type: [ValidationItemResponse], minItems: 1 })
  detail!: ValidationItemResponse[];
}

/** Either kind of a 422: clients tell them apart by whether `detail` is a list. */
@ApiSchema({
  name: 'Unprocessable',
  description: 'A 422. Look at whether `detail` is a list.',
})
@OneOf(() => [ValidationFailureResponse, DetailResponse])
export class UnprocessableResponse {}

/** A 429. */
@ApiSchema({
  name: 'LimitReached',
  description: 'A limit of the user is reached: of sessions under way, open streams or requests.',
})
export class LimitReachedResponse extends DetailResponse {
  /** How many the user may have: sessions that are `pending` or `running`, open streams, requests a minute. */
  @Integer({ minimum: 0, example: 10 })
  limit!: number;

  /** How many there are. */
  @Integer({ minimum: 0, example: 10 })
  active!: number;
}

/** The fields of a page beside its items. */
export class PageResponse {
  /** Is there more behind the last item? Only there where `limit` or `after` was sent. */
  has_more?: boolean;
}
