import {
  type ArgumentMetadata,
  HttpException,
  Injectable,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import { validateSync, type ValidationError } from 'class-validator';
import { badRequest, InvalidBody, type ValidationItem } from '../errors.js';
import { toDto } from '../validation/dto.js';
import { locatedProblems, under } from '../validation/located.js';
import { UnreadableBody } from './json-body.js';

/** class-validator's constraint → the code that clients see, types first. What is not listed is `value_error`. */
const CODES: Record<string, string> = {
  isString: 'string_type',
  isInt: 'int_type',
  isBoolean: 'bool_type',
  isArray: 'list_type',
  isObject: 'object_type',
  nestedValidation: 'object_type',
  isUuid: 'uuid_type',
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
 * Validates request bodies against their DTO class. Unknown members are dropped, `null` is not "absent", values are
 * never converted and never repeated in an error.
 * @throws Refusal 400 or 415 for a body that cannot be read; InvalidBody (422 with a list) for one of the wrong shape.
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
    const unstorable = findUnstorableText(body);
    if (unstorable.length > 0) throw new InvalidBody(unstorable);

    const dto = toDto(metadata.metatype, body);
    const errors = validateSync(dto, {
      whitelist: true,
      forbidUnknownValues: false,
      validationError: { target: false, value: false },
    });
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

/** Of all that is wrong with a value, what the table of codes names first: its type comes before its size. */
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

/** PostgreSQL stores neither U+0000 nor half a surrogate pair; saying so beats failing in the database. */
function findUnstorableText(body: unknown): ValidationItem[] {
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
      for (const [key, item] of Object.entries(value)) {
        if (isUnstorable(key)) visit(key, loc);
        else visit(item, [...loc, key]);
      }
    }
  };
  visit(body, ['body']);
  return items;
}

function isUnstorable(text: string): boolean {
  return text.includes('\0') || !text.isWellFormed();
}
