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
    // Alone, and what is its own beside it: of a second schema in the list, generators make one more class.
    allOf: [{ $ref: `#/components/schemas/${base}` }],
    // The base has it too. Clients for Python inherit nothing, and could not send it.
    properties: { ...(member.properties as Json), [union.propertyName]: oneOfTexts(values) },
    // What those look at in place of the mapping.
    'x-discriminator-value': values[0],
  };
}

/** No enum: a value that a later version adds must not be an error, and one in a subtype would clash with its base's. */
const oneOfTexts = (values: string[]): Json => ({
  type: 'string',
  description: `${values.map((value) => `\`${value}\``).join(', ')}.`,
  example: values[0],
});

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
