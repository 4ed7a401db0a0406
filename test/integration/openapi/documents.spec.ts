import { readFileSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';

type Json = Record<string, unknown>;

interface Operation {
  operationId: string;
  summary?: string;
  tags?: string[];
  security?: unknown[];
  parameters?: { name: string; in: string }[];
  requestBody?: { content: Record<string, { schema: Json; examples?: Json }> };
  responses: Record<string, { content?: Record<string, { schema: Json }> }>;
}

interface Document {
  openapi: string;
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Json>; securitySchemes: Json };
}

const read = (file: string) =>
  JSON.parse(
    readFileSync(new URL(`../../../${file}`, import.meta.url), 'utf8'),
  ) as unknown as Document;
const MODERN = read('openapi.json');
const CLASSIC = read('openapi-3.0.json');

const operationsOf = ({ paths }: Document) =>
  Object.values(paths).flatMap(Object.values<Operation>);
const operation = (document: Document, id: string): Operation => {
  const found = operationsOf(document).find(({ operationId }) => operationId === id);
  if (!found) throw new Error(`no operation ${id}`);
  return found;
};

/** Every object in a document with the way to it. */
function* walk(node: unknown, way: string[] = []): Generator<[string[], Json]> {
  if (typeof node !== 'object' || node === null) return;
  if (!Array.isArray(node)) yield [way, node as Json];
  for (const [key, value] of Object.entries(node)) {
    // What stands there is data.
    if (!['example', 'examples'].includes(key)) yield* walk(value, [...way, key]);
  }
}

/** How 3.1 says that there may be `null` in place of something that has a name. */
const isNullableReference = ({ anyOf }: Json): boolean =>
  Array.isArray(anyOf) &&
  anyOf.length === 2 &&
  '$ref' in (anyOf[0] as Json) &&
  (anyOf[1] as Json).type === 'null';

describe.each([
  ['3.1.0', MODERN],
  ['3.0.3', CLASSIC],
])('OpenAPI %s', (version, document) => {
  const operations = operationsOf(document);

  it('says what it is', () => {
    expect(document.openapi).toBe(version);
    expect(Object.keys(document.components.securitySchemes)).toEqual(['bearer']);
  });

  it('has operations whose ids are names of methods', () => {
    const ids = operations.map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { operationId, summary, tags } of operations) {
      expect(operationId).toMatch(/^[a-z]+([A-Z][a-z]*|30)+$/);
      expect([operationId, Boolean(summary), tags?.length]).toEqual([operationId, true, 1]);
    }
  });

  it('names every schema of a body', () => {
    for (const { operationId, requestBody, responses } of operations) {
      for (const { content = {} } of [requestBody ?? {}, ...Object.values(responses)]) {
        for (const [type, { schema }] of Object.entries(content)) {
          // An OpenAPI document is described by somebody else.
          if (operationId.startsWith('getOpenApi')) continue;
          // The bytes of files, archives and patches have no members to name.
          const isBytes = type !== 'application/json' && 'format' in schema;
          const expected = isBytes
            ? { type: 'string', format: 'binary' }
            : { $ref: expect.any(String) };
          expect([operationId, schema]).toEqual([operationId, expected]);
        }
      }
    }
  });

  it('has no union and no object without a name', () => {
    for (const [way, node] of walk(document.components.schemas)) {
      // Properties may have any name.
      if (way.at(-1) === 'properties') continue;
      const anonymous =
        way.length > 1 &&
        ['oneOf', 'anyOf', 'properties'].some((key) => key in node) &&
        !isNullableReference(node);
      expect([way.join('.'), anonymous]).toEqual([way.join('.'), false]);
    }
  });

  it('gives each body an example', () => {
    for (const { operationId, requestBody } of operations) {
      for (const [type, { examples }] of Object.entries(requestBody?.content ?? {})) {
        if (type === 'application/octet-stream') continue;
        expect([operationId, Object.keys(examples ?? {}).length > 0]).toEqual([operationId, true]);
      }
    }
  });

  it('lists the refusals that clients have to handle', () => {
    for (const { operationId, security, requestBody, responses } of operations) {
      if (security?.length === 0) continue;
      const wanted = requestBody ? ['400', '401', '413', '422', '503'] : ['401', '503'];
      // The bytes of a file may be of any type.
      if (requestBody?.content && 'application/json' in requestBody.content) wanted.push('415');
      expect([operationId, ...Object.keys(responses)]).toEqual(expect.arrayContaining(wanted));
    }
    const refusals = (id: string) => Object.keys(operation(document, id).responses);
    expect(refusals('createSession')).toEqual(expect.arrayContaining(['404', '409', '429', '502']));
    expect(refusals('promptSession')).toEqual(expect.arrayContaining(['404', '409', '429']));
    for (const id of ['updateAgent', 'archiveAgent', 'terminateSession', 'deleteEnvironment']) {
      expect([id, ...refusals(id)]).toEqual(expect.arrayContaining(['404', '409']));
    }
  });

  it('has both shapes of a 422 wherever there are both', () => {
    for (const id of ['createAgent', 'updateAgent', 'createSession', 'promptSession']) {
      const { schema } =
        operation(document, id).responses['422']?.content?.['application/json'] ?? {};
      expect([id, schema]).toEqual([id, { $ref: '#/components/schemas/Unprocessable' }]);
    }
  });

  it('has the headers that make repeating and resuming safe', () => {
    const headers = (id: string) =>
      (operation(document, id).parameters ?? [])
        .filter((parameter) => parameter.in === 'header')
        .map(({ name }) => name);
    expect(headers('createSession')).toEqual(['Idempotency-Key']);
    expect(headers('promptSession')).toEqual(['Idempotency-Key']);
    expect(headers('streamSession')).toEqual(['Last-Event-ID']);
  });

  it('tells events apart by their type', () => {
    const { discriminator } = document.components.schemas.SessionEvent as {
      discriminator: { propertyName: string; mapping: Record<string, string> };
    };
    expect(discriminator.propertyName).toBe('type');
    expect(Object.keys(discriminator.mapping)).toEqual([
      'start',
      'stage',
      'turn_start',
      'output',
      'exit',
      'error',
      'terminated',
      'stale',
    ]);
  });
});

it('both versions describe the same operations', () => {
  const ids = (document: Document) => operationsOf(document).map(({ operationId }) => operationId);
  expect(ids(CLASSIC)).toEqual(ids(MODERN));
});

it('3.1 has events as a union, 3.0.3 as subtypes, which older generators know', () => {
  const { SessionEvent: union, ...others } = MODERN.components.schemas;
  const members = Object.keys(others).filter((name) => name.endsWith('Event'));
  const refs = members.map((name) => ({ $ref: `#/components/schemas/${name}` }));
  expect(union?.oneOf).toHaveLength(8);
  expect(union?.oneOf).toEqual(expect.arrayContaining(refs));
  for (const name of members) {
    expect(CLASSIC.components.schemas[name]?.allOf).toEqual([
      { $ref: '#/components/schemas/SessionEvent' },
    ]);
  }
  expect(JSON.stringify(CLASSIC)).not.toMatch(/"(oneOf|anyOf)":/);
});
