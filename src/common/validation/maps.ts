import { ApiProperty } from '@nestjs/swagger';
import type { ValidationItem } from '../errors.js';
import { all, isJsonObject, Located, problem, under } from './dto.js';

/** The rules for the keys and values of a `{string: string}` object. Lengths are UTF-16 code units. */
export interface StringMapRules {
  maxSize: number;
  maxKeyLength: number;
  maxValueLength: number;
  /** Of keys and values together. */
  maxTotalLength?: number;
  /** The pattern of keys, and the message for a key that does not match. */
  key?: { pattern: RegExp; msg: string };
  /** The pattern of values, and the message for a value that does not match. */
  value?: { pattern: RegExp; msg: string };
}

/** An object whose values are all strings. */
export function StringMap(rules: StringMapRules): PropertyDecorator {
  return all(
    Located((value) => stringMapProblems(value, rules)),
    ApiProperty({
      type: 'object',
      maxProperties: rules.maxSize,
      additionalProperties: {
        type: 'string',
        maxLength: rules.maxValueLength,
        pattern: rules.value?.pattern.source,
      },
    }),
  );
}

/** A list of strings. */
export function StringList(rules: { maxSize: number; maxLength: number }): PropertyDecorator {
  return all(
    Located((value) => stringListProblems(value, rules)),
    ApiProperty({
      type: 'array',
      maxItems: rules.maxSize,
      items: { type: 'string', maxLength: rules.maxLength },
    }),
  );
}

export function stringMapProblems(value: unknown, rules: StringMapRules): ValidationItem[] {
  if (!isJsonObject(value)) return [problem('object_type', 'Must be an object of strings')];
  const entries = Object.entries(value);
  if (entries.length > rules.maxSize) {
    return [problem('too_long', `Must not have more than ${rules.maxSize} keys`)];
  }
  const items = entries.flatMap(([key, text], index) =>
    under([index], entryProblems(key, text, rules)),
  );
  if (items.length > 0 || rules.maxTotalLength === undefined) return items;
  const total = entries.reduce((sum, [key, text]) => sum + key.length + String(text).length, 0);
  return total <= rules.maxTotalLength
    ? []
    : [problem('too_long', `Must not hold more than ${rules.maxTotalLength} characters in all`)];
}

/** Locations are positions instead of keys, because a wrong key may contain what was meant as the value. */
function entryProblems(key: string, text: unknown, rules: StringMapRules): ValidationItem[] {
  if (key.length > rules.maxKeyLength) {
    return [problem('string_too_long', `A key has at most ${rules.maxKeyLength} characters`)];
  }
  if (key === '') return [problem('string_too_short', 'A key must not be empty')];
  if (rules.key && !rules.key.pattern.test(key)) {
    return [problem('string_pattern_mismatch', rules.key.msg)];
  }
  if (typeof text !== 'string') return [problem('string_type', 'Must be a string')];
  if (text.length > rules.maxValueLength) {
    const msg = `Must not be longer than ${rules.maxValueLength} characters`;
    return [problem('string_too_long', msg)];
  }
  if (rules.value && !rules.value.pattern.test(text)) {
    return [problem('string_pattern_mismatch', rules.value.msg)];
  }
  return [];
}

export function stringListProblems(
  value: unknown,
  rules: { maxSize: number; maxLength: number },
): ValidationItem[] {
  if (!Array.isArray(value)) return [problem('list_type', 'Must be a list of strings')];
  if (value.length > rules.maxSize) {
    return [problem('too_long', `Must not have more than ${rules.maxSize} items`)];
  }
  return value.flatMap((text: unknown, index) => {
    if (typeof text !== 'string') return [problem('string_type', 'Must be a string', [index])];
    return text.length > rules.maxLength
      ? [
          problem('string_too_long', `Must not be longer than ${rules.maxLength} characters`, [
            index,
          ]),
        ]
      : [];
  });
}
