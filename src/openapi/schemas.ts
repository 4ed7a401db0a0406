import { type OpenAPIObject, getSchemaPath } from '@nestjs/swagger';
import { unions } from '../common/openapi/decorators.js';
import { joinLines } from './common-answers.js';

interface Discriminator {
  propertyName: string;
  mapping: Record<string, string>;
}

/**
 * Removes all unions from a document, for generators that do not support them. A union with a discriminator becomes a
 * base schema with subtypes, which generators turn into classes with inheritance. A union of objects becomes one object
 * with the properties of all. Any other union becomes a schema that accepts anything. What the union accepted is still
 * accepted.
 */
export function replaceUnions(document: OpenAPIObject): void {
  const schemas = document.components?.schemas as Record<string, Json>;
  for (const [name, union] of Object.entries(schemas)) {
    if (!union.oneOf) continue;
    const members = (union.oneOf as { $ref: string }[]).map(({ $ref }) => nameOf($ref));
    const discriminator = union.discriminator as Discriminator | undefined;
    if (discriminator) {
      schemas[name] = baseSchema(union, discriminator);
      for (const member of members) {
        schemas[member] = subtype(name, member, discriminator, schemas[member] ?? {});
      }
    } else {
      schemas[name] = merged(
        union,
        members.map((member) => schemas[member] ?? {}),
      );
    }
  }
  dropUnused(document, schemas);
}

function baseSchema({ description }: Json, discriminator: Discriminator): Json {
  const { propertyName, mapping } = discriminator;
  return {
    type: 'object',
    description,
    properties: { [propertyName]: oneOfTexts(Object.keys(mapping)) },
    required: [propertyName],
    discriminator,
  };
}

function subtype(base: string, name: string, union: Discriminator, member: Json): Json {
  const values = Object.keys(union.mapping).filter(
    (value) => nameOf(union.mapping[value] ?? '') === name,
  );
  return {
    ...member,
    // Only the base is in the list: generators make another class of a second schema there.
    allOf: [{ $ref: `#/components/schemas/${base}` }],
    // Repeats the base's property, because Python clients do not inherit and could not send it.
    properties: { ...(member.properties as Json), [union.propertyName]: oneOfTexts(values) },
    // Read by Python generators instead of the mapping.
    'x-discriminator-value': values[0],
  };
}

/**
 * Not an enum: a value that a later version adds must not be an error, and an enum in a subtype would clash with its
 * base's.
 */
const oneOfTexts = (values: string[]): Json => ({
  type: 'string',
  description: `${values.map((value) => `\`${value}\``).join(', ')}.`,
  example: values[0],
});

function merged({ description }: Json, members: Json[]): Json {
  if (members.some(({ type }) => type !== 'object')) return { description };
  const properties: Record<string, Json> = {};
  for (const [name, schema] of members.flatMap((member) =>
    Object.entries(member.properties as Record<string, Json>),
  )) {
    const before = properties[name];
    properties[name] = before ? either(before, schema) : schema;
  }
  const required = Object.keys(properties).filter((name) =>
    members.every((member) => (member.required as string[] | undefined)?.includes(name)),
  );
  return { type: 'object', description, properties, ...(required.length > 0 && { required }) };
}

/** A property that two members have: their values, or anything. */
const either = (one: Json, other: Json): Json =>
  Array.isArray(one.enum) && Array.isArray(other.enum)
    ? { ...one, enum: [...one.enum, ...other.enum] }
    : {};

/** Removes members that were merged and are not referenced any more. */
function dropUnused(document: OpenAPIObject, schemas: Record<string, Json>): void {
  const text = JSON.stringify(document);
  for (const name of Object.keys(schemas)) {
    if (!text.includes(`"#/components/schemas/${name}"`)) delete schemas[name];
  }
}

/** 3.1 for readers of today; the same document as 3.0.3 for generators that know no other. */
export type OpenApiVersion = '3.1.0' | '3.0.3';

/** A schema, or a part of one. */
export type Json = Record<string, unknown>;

/** Replaces the schema of each class that is marked as a union by the named `oneOf` that it stands for. */
export function nameUnions(document: OpenAPIObject): void {
  const schemas = document.components?.schemas as Record<string, Json>;
  for (const [union, membersOf] of unions()) {
    const name = nameOf(getSchemaPath(union));
    const members = membersOf();
    const mapping = mapValues(members, (member) => {
      if (typeof member === 'function') return getSchemaPath(member);
      schemas[member.name] = member.schema;
      return getSchemaPath(member.name);
    });
    schemas[name] = {
      description: schemas[name]?.description,
      oneOf: [...new Set(Object.values(mapping))].map(($ref) => ({ $ref })),
      ...(!Array.isArray(members) && { discriminator: { propertyName: 'type', mapping } }),
    };
  }
}

/** Sorts schemas and paths by name, so that the document does not depend on the order of a scan, and mends their form. */
export function tidySchemas(document: OpenAPIObject, version: OpenApiVersion): void {
  const schemas = document.components?.schemas as Record<string, Json>;
  document.components = {
    ...document.components,
    schemas: sorted(mapValues(schemas, (schema) => tidy(schema, version))),
  };
  document.paths = sorted(document.paths);
}

function tidy(schema: Json, version: OpenApiVersion): Json {
  const result: Json = {};
  const alone = version === '3.1.0' || Object.keys(schema).length === 1;
  for (const [key, value] of Object.entries(schema)) {
    if (key === 'properties') {
      result.properties = mapValues(value as Record<string, Json>, (one) => tidy(one, version));
    } else if (key === 'items' || key === 'additionalProperties') {
      result[key] = typeof value === 'object' ? tidy(value as Json, version) : value;
    } else if (key === 'description' && value) {
      result.description = joinLines(value as string);
    } else if (key === 'allOf' && alone && (value as Json[]).length === 1) {
      // 3.0 lets nothing stand beside a reference; 3.1 does.
      Object.assign(result, (value as Json[])[0]);
    } else if (key === 'example' && version === '3.1.0') {
      // 3.1 is JSON Schema, where examples are a list.
      result.examples = [value];
    } else {
      result[key] = value;
    }
  }
  return result;
}

/** The name of the schema that a reference points to. */
export const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1);

const sorted = <T>(record: Record<string, T>): Record<string, T> =>
  Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1)));

export const mapValues = <T, U>(
  record: Record<string, T> | readonly T[],
  map: (value: T) => U,
): Record<string, U> =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value)]));
