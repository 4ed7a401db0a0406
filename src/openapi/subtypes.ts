import type { OpenAPIObject } from '@nestjs/swagger';
import { type Json, mapValues, nameOf } from './schemas.js';

interface Discriminator {
  propertyName: string;
  mapping: Record<string, string>;
}

/**
 * Takes all unions out of a document, for generators that make nothing useful of them. One with a discriminator becomes a
 * base schema whose members are its subtypes, the form that classes with inheritance are made of; one of objects becomes
 * an object with the members of all; any other may be anything. What is valid as the union stays valid.
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
        schemas[member] = subtype(name, discriminator, schemas[member] ?? {});
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

function baseSchema(union: Json, discriminator: Discriminator): Json {
  const values = Object.keys(discriminator.mapping).map((value) => `\`${value}\``);
  const { propertyName } = discriminator;
  return {
    type: 'object',
    description: union.description,
    // No enum: a value that a later version adds must not be an error.
    properties: { [propertyName]: { type: 'string', description: `${values.join(', ')}.` } },
    required: [propertyName],
    discriminator,
  };
}

/** Says of its own only what the base does not. */
function subtype(base: string, { propertyName }: Discriminator, member: Json): Json {
  const { description, properties, required = [], ...rest } = member;
  const { [propertyName]: _, ...own } = (properties ?? {}) as Json;
  const ownRequired = (required as string[]).filter((name) => name !== propertyName);
  return {
    description,
    // Beside the reference and not in a second schema, of which generators would make a class of its own.
    allOf: [{ $ref: `#/components/schemas/${base}` }],
    ...rest,
    ...(Object.keys(own).length > 0 && { properties: own }),
    ...(ownRequired.length > 0 && { required: ownRequired }),
  };
}

function merged({ description }: Json, members: Json[]): Json {
  if (members.some(({ type }) => type !== 'object')) return { description };
  const properties: Record<string, Json[]> = {};
  for (const member of members) {
    for (const [name, schema] of Object.entries(member.properties as Record<string, Json>)) {
      (properties[name] ??= []).push(schema);
    }
  }
  const required = Object.keys(properties).filter((name) =>
    members.every((member) => (member.required as string[] | undefined)?.includes(name)),
  );
  return {
    type: 'object',
    description,
    properties: mapValues(properties, either),
    ...(required.length > 0 && { required }),
  };
}

/** What holds for a property that is in one member or in several. */
function either(schemas: Json[]): Json {
  const [first = {}, ...others] = schemas;
  if (others.length === 0) return first;
  const descriptions = schemas.map(({ description }) => description).filter(Boolean);
  const description = descriptions.length > 0 && { description: descriptions.join(' ') };
  if (schemas.some(({ type }) => type !== first.type)) return { ...description };
  const values = schemas.flatMap((schema) => (schema.enum as string[] | undefined) ?? []);
  return { type: first.type, ...description, ...(values.length > 0 && { enum: values }) };
}

/** Members that were merged away have no reader left. */
function dropUnused(document: OpenAPIObject, schemas: Record<string, Json>): void {
  for (;;) {
    const text = JSON.stringify(document);
    const unused = Object.keys(schemas).filter(
      (name) => !text.includes(`"#/components/schemas/${name}"`),
    );
    if (unused.length === 0) return;
    for (const name of unused) delete schemas[name];
  }
}
