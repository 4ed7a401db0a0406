import { ValidateBy, ArrayMaxSize, IsArray, ValidateNested, IsString } from 'class-validator';
import type { ValidationItem } from '../errors.js';
import type { Type } from '@nestjs/common';
import { ApiProperty } from '@nestjs/swagger';
import { httpUrlProblem, MAX_URL_LENGTH } from '../http-url.js';
import { Uuid } from '../openapi/decorators.js';

/** The name of the constraint that reports the location of each problem inside a value. */
export const LOCATED = 'located';

/** @returns the problems of `value`; `loc` is relative to it, `[]` for the value itself. */
export type LocatedCheck = (value: unknown) => ValidationItem[];

/**
 * Validates a value with a plain function whose findings have locations; class-validator's own constraints only name
 * the property. The validation pipe reads the findings with {@link locatedProblems}.
 */
export function Located(check: LocatedCheck): PropertyDecorator {
  return ValidateBy(
    {
      name: LOCATED,
      validator: {
        validate: (value) => check(value).length === 0,
        defaultMessage: () => 'Invalid value',
      },
    },
    { context: { check } },
  );
}

/** The findings of the {@link Located} constraint of a property, or `undefined` if another constraint failed. */
export function locatedProblems(
  contexts: Readonly<Record<string, unknown>> | undefined,
  value: unknown,
): ValidationItem[] | undefined {
  const context = contexts?.[LOCATED] as { check: LocatedCheck } | undefined;
  return context?.check(value);
}

/** One finding. */
export function problem(
  type: string,
  msg: string,
  loc: readonly (string | number)[] = [],
): ValidationItem {
  return { type, loc: [...loc], msg };
}

/** Prefixes the locations of findings with the path of their value. */
export function under(
  path: readonly (string | number)[],
  items: readonly ValidationItem[],
): ValidationItem[] {
  return items.map(({ type, loc, msg }) => problem(type, msg, [...path, ...loc]));
}

type JsonObject = Record<string, unknown>;
/** Which DTO class an object in a body is to be read as. */
export type Choose = (item: JsonObject) => Type;

/** The conversions of raw values before the validation, by class and property. */
const READERS = new WeakMap<object, Map<string, (raw: unknown) => unknown>>();

/** Neither an object nor an array, so that nested validation rejects it. */
const NOT_AN_OBJECT = false;

/** An object that is validated as the class that `choose` picks for it. */
export function Item(choose: Choose): PropertyDecorator {
  return all(
    reader((raw) => readItem(choose, raw)),
    ValidateNested({ message: '$property must be an object' }),
  );
}

/** A list of objects, each validated as the class that `choose` picks for it. */
export function Items(choose: Choose, maxSize: number): PropertyDecorator {
  return all(
    reader((raw) => (Array.isArray(raw) ? raw.map((item) => readItem(choose, item)) : raw)),
    IsArray(),
    ArrayMaxSize(maxSize),
    ApiProperty({ maxItems: maxSize }),
    ValidateNested({ each: true, message: 'Must be an object' }),
  );
}

/**
 * Makes an instance of a DTO class out of a JSON object. Nothing is checked or converted yet. Does not use
 * class-transformer, which fails on members called `constructor`, drops them from maps, and accepts `[]` as an object.
 */
export function toDto<T extends object>(type: Type<T>, body: object): T {
  const dto = new type();
  const readers = readersOf(type);
  for (const [property, value] of Object.entries(body)) {
    // Either would change the instance's class; no DTO has such a member.
    if (property === '__proto__' || property === 'constructor') continue;
    const convert = readers.get(property);
    Object.assign(dto, { [property]: convert ? convert(value) : value });
  }
  return dto;
}

function readersOf(type: Type): Map<string, (raw: unknown) => unknown> {
  const readers = new Map<string, (raw: unknown) => unknown>();
  for (let at = type.prototype as object | null; at; at = Object.getPrototypeOf(at)) {
    for (const [property, read] of READERS.get(at) ?? []) {
      if (!readers.has(property)) readers.set(property, read);
    }
  }
  return readers;
}

function readItem(choose: Choose, raw: unknown): unknown {
  if (raw === null) return null;
  return isJsonObject(raw) ? toDto(choose(raw), raw) : NOT_AN_OBJECT;
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Converts the raw value of a property before it is validated. */
export function reader(read: (raw: unknown) => unknown): PropertyDecorator {
  return (target, property) => {
    const readers = READERS.get(target) ?? new Map<string, (raw: unknown) => unknown>();
    READERS.set(target, readers.set(String(property), read));
  };
}

/** Several decorators of a property as one. */
export function all(...decorators: PropertyDecorator[]): PropertyDecorator {
  return (target, property) => {
    for (const decorate of decorators) decorate(target, property);
  };
}

/** An `http` or `https` address without user and password. */
export function HttpUrl(): PropertyDecorator {
  return all(
    Located((value) => {
      if (typeof value !== 'string') return [problem('string_type', 'Must be a string')];
      const wrong = httpUrlProblem(value);
      return wrong === undefined ? [] : [problem('url', wrong)];
    }),
    ApiProperty({ type: String, format: 'uri', maxLength: MAX_URL_LENGTH }),
  );
}

/** The id of another resource, in upper or lower case. A malformed id passes: looking it up then answers 404. */
export function Id(options: { nullable?: true } = {}): PropertyDecorator {
  return all(
    reader((raw) => (typeof raw === 'string' ? raw.toLowerCase() : raw)),
    IsString(),
    Uuid(options),
  );
}

/** No two objects of the list may have the same text in `member`. Ignores objects without it. */
export function Unique(member: string): PropertyDecorator {
  return Located((value) => {
    const seen = new Set<unknown>();
    return (Array.isArray(value) ? value : []).flatMap((item: unknown, index) => {
      const text = (item as Record<string, unknown> | null | undefined)?.[member];
      if (typeof text !== 'string') return [];
      if (seen.has(text)) {
        return [problem('duplicate', `Must be unique in the list`, [index, member])];
      }
      seen.add(text);
      return [];
    });
  });
}
