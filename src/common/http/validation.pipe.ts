import {
  ValidateIf,
  getMetadataStorage,
  validateSync,
  type ValidationError,
} from 'class-validator';
import {
  type ArgumentMetadata,
  HttpException,
  Injectable,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import { badRequest, InvalidBody, type ValidationItem } from '../errors.js';
import { toDto, locatedProblems, under } from '../validation/dto.js';
import { UnreadableBody } from './request-body.js';

/** For an optional field that is not nullable. class-validator's own `@IsOptional` lets `null` pass, too. */
export const IfPresent = (): PropertyDecorator =>
  ValidateIf((_dto: object, value: unknown) => value !== undefined);

/** For an optional field that may be `null`. */
export const IfPresentAndNotNull = (): PropertyDecorator =>
  ValidateIf((_dto: object, value: unknown) => value !== undefined && value !== null);

/** Maps class-validator's constraints to the codes that clients see, types first. All others are `value_error`. */
const CODES: Record<string, string> = {
  isString: 'string_type',
  isInt: 'int_type',
  isBoolean: 'bool_type',
  isArray: 'list_type',
  isObject: 'object_type',
  nestedValidation: 'object_type',
  isIn: 'enum',
  min: 'greater_than_equal',
  max: 'less_than_equal',
  minLength: 'string_too_short',
  isNotEmpty: 'string_too_short',
  maxLength: 'string_too_long',
  arrayMaxSize: 'too_long',
  matches: 'string_pattern_mismatch',
};

/**
 * Validates request bodies against their DTO class. Drops unknown members, does not treat `null` as absent, and neither
 * converts values nor repeats them in errors.
 * @throws DomainError 400 or 415 for a body that cannot be read; InvalidBody (422 with a list) for one of the wrong
 * shape.
 */
@Injectable()
export class BodyValidationPipe implements PipeTransform {
  transform(value: unknown, metadata: ArgumentMetadata): unknown {
    if (metadata.type !== 'body' || !isDtoClass(metadata.metatype)) return value;
    if (value instanceof UnreadableBody) {
      throw value.status === 400
        ? badRequest(value.detail)
        : new HttpException(value.detail, value.status);
    }
    const body = value === undefined ? {} : value;
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw new InvalidBody([
        { type: 'object_type', loc: ['body'], msg: 'The body must be a JSON object' },
      ]);
    }
    const dto = toDto(metadata.metatype, body);
    const errors = validateSync(dto, {
      whitelist: true,
      forbidUnknownValues: false,
      validationError: { target: false, value: false },
    });
    // Unknown members have been removed by now, so only known ones are checked.
    const unstorable = findUnstorableText(dto);
    if (unstorable.length > 0) throw new InvalidBody(unstorable);
    if (errors.length > 0) throw new InvalidBody(toItems(errors, body, ['body']));
    return dto;
  }
}

function isDtoClass(metatype: unknown): metatype is Type<object> {
  return typeof metatype === 'function' && metatype !== Object && metatype !== String;
}

function toItems(
  errors: readonly ValidationError[],
  parent: unknown,
  loc: readonly (string | number)[],
): ValidationItem[] {
  return errors.flatMap((error) => {
    const key = Array.isArray(parent) ? Number(error.property) : error.property;
    const here = [...loc, key];
    const value = ownValue(parent, error.property);
    if (error.children?.length) return toItems(error.children, value, here);
    const [constraint, msg] = gravest(error.constraints ?? {});
    if (value === undefined) return [{ type: 'missing', loc: here, msg: 'Field required' }];
    const located = locatedProblems(error.contexts, value);
    if (located) return under(here, located);
    return [{ type: CODES[constraint] ?? 'value_error', loc: here, msg }];
  });
}

/** The problem of a value that comes first in the table of codes: its type before its size. */
function gravest(constraints: Readonly<Record<string, string>>): [constraint: string, msg: string] {
  const known = Object.keys(CODES).find((name) => name in constraints);
  const constraint = known ?? Object.keys(constraints)[0] ?? '';
  return [constraint, constraints[constraint] ?? 'Invalid value'];
}

function ownValue(parent: unknown, key: string): unknown {
  return typeof parent === 'object' && parent !== null && Object.hasOwn(parent, key)
    ? (parent as Record<string, unknown>)[key]
    : undefined;
}

/** Finds text with U+0000 or half a surrogate pair, which PostgreSQL does not store. */
function findUnstorableText(dto: object): ValidationItem[] {
  const items: ValidationItem[] = [];
  const visit = (value: unknown, loc: (string | number)[]): void => {
    if (typeof value === 'string' && isUnstorable(value)) {
      items.push({
        type: 'string_unicode',
        loc,
        msg: 'Text must not hold U+0000 or unpaired surrogates',
      });
    } else if (Array.isArray(value)) {
      value.forEach((item, index) => visit(item, [...loc, index]));
    } else if (typeof value === 'object' && value !== null) {
      const ours = membersOf(value);
      for (const [index, [key, item]] of Object.entries(value).entries()) {
        // Keys that the DTO does not declare are not repeated in the answer.
        const here = [...loc, ours.has(key) ? key : index];
        if (isUnstorable(key)) visit(key, here);
        else visit(item, here);
      }
    }
  };
  visit(dto, ['body']);
  return items;
}

/** The members that a DTO's class declares; none for a plain object. */
function membersOf(value: object): ReadonlySet<string> {
  const { constructor } = value;
  if (typeof constructor !== 'function') return new Set();
  const declared = getMetadataStorage().getTargetValidationMetadatas(constructor, '', false, false);
  return new Set(declared.map(({ propertyName }) => propertyName));
}

function isUnstorable(text: string): boolean {
  return text.includes('\0') || !text.isWellFormed();
}
