import { getSchemaPath, type OpenAPIObject } from '@nestjs/swagger';
import { unions } from '../common/openapi/one-of.decorator.js';
import { joinLines } from './common-answers.js';

/** 3.1 for readers of today; the same document as 3.0.3 for generators that know no other. */
export type OpenApiVersion = '3.1.0' | '3.0.3';

/** A schema, or a part of one. */
export type Json = Record<string, unknown>;

/** Replaces the schema of each class that is marked as a union by the named `oneOf` that it stands for. */
export function nameUnions(document: OpenAPIObject): void {
  const schemas = document.components?.schemas as Record<string, Json>;
  for (const [union, { members, discriminator }] of unions()) {
    const name = nameOf(getSchemaPath(union));
    const refs = members().map((member) => {
      if (typeof member === 'function') return getSchemaPath(member);
      schemas[member.name] = member.schema;
      return getSchemaPath(member.name);
    });
    const mapping = Object.entries(discriminator?.mapping() ?? {}).map(([value, member]) => [
      value,
      getSchemaPath(member),
    ]);
    schemas[name] = {
      description: schemas[name]?.description,
      oneOf: refs.map(($ref) => ({ $ref })),
      ...(discriminator && {
        discriminator: {
          propertyName: discriminator.propertyName,
          mapping: Object.fromEntries(mapping) as Json,
        },
      }),
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
  for (const [key, value] of Object.entries(schema)) {
    if (value === undefined) continue;
    const alone = version === '3.1.0' || Object.keys(schema).length === 1;
    if (key === 'allOf' && alone && (value as Json[]).length === 1) {
      // 3.0 lets nothing stand beside a reference; 3.1 does.
      Object.assign(result, (value as Json[])[0]);
      continue;
    }
    if (key === 'allOf') {
      result.allOf = (value as Json[]).map((one) => tidy(one, version));
    } else if (key === 'properties') {
      result.properties = mapValues(value as Record<string, Json>, (one) => tidy(one, version));
    } else if (key === 'items' || key === 'additionalProperties') {
      result[key] = typeof value === 'object' ? tidy(value as Json, version) : value;
    } else if (key === 'example' && version === '3.1.0') {
      // 3.1 is JSON Schema, where examples are a list.
      result.examples = [value];
    } else if (key === 'examples' && version === '3.0.3') {
      result.example = (value as unknown[])[0];
    } else if (key === 'description') {
      result.description = joinLines(value as string);
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
  record: Record<string, T>,
  map: (value: T) => U,
): Record<string, U> =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value)]));
