import type { Type } from '@nestjs/common';
import { ApiProperty } from '@nestjs/swagger';
import { ArrayMaxSize, IsArray, ValidateNested } from 'class-validator';

type JsonObject = Record<string, unknown>;
/** Which DTO class an object in a body is to be read as. */
export type Choose = (item: JsonObject) => Type;

/** Class → property → how its raw value becomes what is validated. */
const READERS = new WeakMap<object, Map<string, (raw: unknown) => unknown>>();

/** Never an object nor an array, so that nested validation refuses it. */
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
 * Makes an instance of a DTO class out of a JSON object. Nothing is checked or converted yet. Not class-transformer:
 * that trips over members called `constructor`, drops them from maps, and lets `[]` pass for an object.
 */
export function toDto<T extends object>(type: Type<T>, body: object): T {
  const dto = new type();
  const readers = readersOf(type);
  for (const [property, value] of Object.entries(body)) {
    // Either would change what the instance is; no DTO has such a member.
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

function reader(read: (raw: unknown) => unknown): PropertyDecorator {
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
