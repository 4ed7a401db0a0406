import { ApiProperty } from '@nestjs/swagger';
import type { ValidationItem } from '../errors.js';
import { all, isJsonObject } from './dto.js';
import { Located, problem } from './located.js';

/** What the keys and values of a `{string: string}` object may be. Lengths are UTF-16 code units. */
export interface StringMapRules {
  maxSize: number;
  maxKeyLength: number;
  maxValueLength: number;
  /** Of keys and values together. */
  maxTotalLength?: number;
  /** What a key must look like, and how to say so. */
  key?: { pattern: RegExp; msg: string };
  /** What a value must look like, and how to say so. */
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
  const items = entries.flatMap(([key, text]) => entryProblems(key, text, rules));
  if (items.length > 0 || rules.maxTotalLength === undefined) return items;
  const total = entries.reduce((sum, [key, text]) => sum + key.length + String(text).length, 0);
  return total <= rules.maxTotalLength
    ? []
    : [problem('too_long', `Must not hold more than ${rules.maxTotalLength} characters in all`)];
}

function entryProblems(key: string, text: unknown, rules: StringMapRules): ValidationItem[] {
  // An over-long key is not repeated in its own error.
  if (key.length > rules.maxKeyLength) {
    return [problem('string_too_long', `A key has at most ${rules.maxKeyLength} characters`)];
  }
  if (key === '') return [problem('string_too_short', 'A key must not be empty')];
  if (rules.key && !rules.key.pattern.test(key)) {
    return [problem('string_pattern_mismatch', rules.key.msg, [key])];
  }
  if (typeof text !== 'string') return [problem('string_type', 'Must be a string', [key])];
  if (text.length > rules.maxValueLength) {
    const msg = `Must not be longer than ${rules.maxValueLength} characters`;
    return [problem('string_too_long', msg, [key])];
  }
  if (rules.value && !rules.value.pattern.test(text)) {
    return [problem('string_pattern_mismatch', rules.value.msg, [key])];
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
