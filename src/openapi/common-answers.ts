import type { OpenAPIObject } from '@nestjs/swagger';
import { INVALID_FIELDS } from '../common/openapi/operation.decorator.js';

type OperationObject = NonNullable<OpenAPIObject['paths'][string]['get']>;

const LOCATION =
  'Where the resource is: a path, or an absolute address where the service knows its own.';
const RETRY_AFTER = 'Seconds.';

const METHODS = ['get', 'put', 'post', 'delete'] as const;
const SUCCESS: Record<string, string> = { 200: 'OK.', 201: 'Created.', 202: 'Accepted.' };

/** Line breaks of a comment in the source mean nothing; empty lines do. */
export const joinLines = (text: string): string => text.replaceAll(/(?<!\n)\n(?!\n)/g, ' ');

const json = (schema: string, examples: Record<string, unknown>) => ({
  'application/json': {
    schema: { $ref: `#/components/schemas/${schema}` },
    examples: Object.fromEntries(
      Object.entries(examples).map(([key, value]) => [key, { summary: key, value }]),
    ),
  },
});

/** Answers that are the same wherever they are given. */
const SHARED = {
  Malformed: {
    description: 'The request is malformed.',
    content: json('Detail', {
      url: { detail: 'Malformed URL' },
      host: { detail: 'The Host header is missing' },
    }),
  },
  Unauthorized: {
    description: 'The access token is missing, invalid, revoked or expired.',
    headers: { 'WWW-Authenticate': { description: '`Bearer`.', schema: { type: 'string' } } },
    content: json('Detail', { unauthorized: { detail: 'Missing or invalid access token' } }),
  },
  TooManyRequests: {
    description: 'The user has sent as many requests as the operator allows in a minute.',
    headers: { 'Retry-After': { description: 'Seconds.', schema: { type: 'string' } } },
    content: json('LimitReached', {
      requests: {
        detail: 'Request limit reached (600 requests a minute). Try again in 12 seconds.',
        limit: 600,
        active: 600,
      },
    }),
  },
  TooLarge: {
    description: 'The body is larger than the service takes.',
    content: json('Detail', { too_large: { detail: 'The request body is too large' } }),
  },
  UnsupportedMediaType: {
    description: 'The body is not of the type `application/json`.',
    content: json('Detail', {
      unsupported: { detail: 'Unsupported content type: send application/json' },
    }),
  },
  InvalidFields: {
    description: 'Fields of the body are missing or of the wrong type.',
    content: json('ValidationFailure', { missing: INVALID_FIELDS }),
  },
  Unavailable: {
    description:
      'The database does not answer. Nothing was done, or nobody knows: look before you try again.',
    headers: { 'Retry-After': { description: RETRY_AFTER, schema: { type: 'string' } } },
    content: json('Detail', {
      unavailable: { detail: 'The database is unavailable; try again shortly' },
    }),
  },
} as const;

const INVALID_JSON = [
  ['invalid_json', 'Invalid JSON in the request body'],
  ['too_deep', 'Invalid JSON in the request body: nested deeper than 64'],
  ['too_many', 'Invalid JSON in the request body: more than 20000 values'],
] as const;

/** Adds what every guarded operation, and every one with a body, may answer. */
export function addCommonAnswers(document: OpenAPIObject): void {
  document.components ??= {};
  document.components.responses = structuredClone(SHARED) as object as Record<string, never>;
  for (const [path, item] of Object.entries(document.paths)) {
    for (const method of METHODS) {
      const operation = item[method];
      if (!operation) continue;
      complete(operation);
      describeId(operation, path);
    }
  }
}

function complete(operation: OperationObject): void {
  if (operation.description) operation.description = joinLines(operation.description);
  const { responses } = operation;
  const own400 = responses['400'];
  for (const [status, response] of Object.entries(responses)) {
    if (response && 'description' in response) response.description ||= SUCCESS[status] ?? '';
  }
  for (const status of ['201', '202']) addHeader(responses[status], 'Location', LOCATION);
  addHeader(responses['429'], 'Retry-After', RETRY_AFTER);
  responses['400'] ??= shared('Malformed');
  // What Public() says in Nest's words: the empty requirement.
  if (operation.security) {
    operation.security = [];
    return;
  }
  responses['401'] = shared('Unauthorized');
  responses['429'] ??= shared('TooManyRequests');
  responses['503'] = shared('Unavailable');
  const { requestBody } = operation;
  if (!requestBody || !('content' in requestBody) || !requestBody.content['application/json'])
    return;
  responses['400'] = withInvalidJson(own400);
  responses['413'] = shared('TooLarge');
  responses['415'] = shared('UnsupportedMediaType');
  responses['422'] ??= shared('InvalidFields');
}

function addHeader(
  response: OperationObject['responses'][string],
  name: string,
  description: string,
): void {
  if (!response || !('description' in response)) return;
  response.headers = { ...response.headers, [name]: { description, schema: { type: 'string' } } };
}

const shared = (name: keyof typeof SHARED) => ({ $ref: `#/components/responses/${name}` });

function withInvalidJson(own: OperationObject['responses'][string]) {
  const invalid = Object.fromEntries(INVALID_JSON.map(([key, detail]) => [key, { detail }]));
  const content = json('Detail', invalid);
  const { examples } = content['application/json'];
  const before = own && 'content' in own ? own.content?.['application/json']?.examples : undefined;
  Object.assign(examples, before);
  return { description: 'The body is not JSON, or cannot be served.', content };
}

/** All ids in paths are of one kind: of the collection before them. */
function describeId(operation: OperationObject, path: string): void {
  const resource = /(\w+)s\/\{id\}/.exec(path)?.[1] ?? '';
  for (const parameter of operation.parameters ?? []) {
    if (!path.includes('{id}') || !('in' in parameter) || parameter.in !== 'path') continue;
    parameter.description = `The id of the ${resource}.`;
    parameter.schema = { type: 'string', format: 'uuid' };
  }
}
