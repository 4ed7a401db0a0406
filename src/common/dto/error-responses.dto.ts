import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import type { ValidationItem } from '../errors.js';
import { OneOf } from '../openapi/one-of.decorator.js';
import { Integer } from '../openapi/properties.js';
import { DetailResponse } from './detail-response.dto.js';

/** A step of the way to a field. */
@ApiSchema({ name: 'LocationStep', description: 'The name of a member, or an index in a list.' })
@OneOf({
  members: () => [
    { name: 'LocationMember', schema: { type: 'string' } },
    { name: 'LocationIndex', schema: { type: 'integer', minimum: 0 } },
  ],
})
class LocationStep {}

/** One thing that is wrong with a body. */
@ApiSchema({ name: 'ValidationItem', description: 'One thing that is wrong with a body.' })
class ValidationItemResponse implements ValidationItem {
  /**
   * What is wrong: `missing` for an absent field, else a stable code such as `string_type`, `int_type`,
   * `greater_than_equal`, `string_too_long`, `enum`, `uuid_type`.
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
@OneOf({ members: () => [ValidationFailureResponse, DetailResponse] })
export class UnprocessableResponse {}

/** A 429. */
@ApiSchema({
  name: 'LimitReached',
  description: 'The limit of concurrent sessions is reached.',
})
export class LimitReachedResponse extends DetailResponse {
  /** How many sessions the user may have active, i.e. `pending` or `running`. */
  @Integer({ minimum: 0, example: 10 })
  limit!: number;

  /** How many are. */
  @Integer({ minimum: 0, example: 10 })
  active!: number;
}
