import { applyDecorators, type Type } from '@nestjs/common';
import { ApiBody, ApiOperation, ApiResponse } from '@nestjs/swagger';
import { OperatorRoute, TakesBody } from '../request-decorators.js';
import {
  DetailResponse,
  LimitReachedResponse,
  UnprocessableResponse,
  ValidationFailureResponse,
} from './error-responses.dto.js';

interface OperationOptions {
  /** The method's name in generated clients. */
  id: string;
  /** The body's class, with examples by name. */
  body?: { type: Type; examples: Record<string, unknown> };
  /** Only there for operators. */
  forOperators?: true;
  /**
   * The errors of the operation itself, with the exact sentences of `detail`. The errors that every operation may
   * return (401, 503, and 400, 413, 415, 422 for a body) are added to the whole document.
   */
  refusals?: Partial<Record<keyof typeof REFUSALS, readonly string[]>>;
}

const REFUSALS = {
  400: 'The request cannot be served as it is.',
  404: 'Not found, or not owned by the user of the token.',
  409: 'In conflict with the state of the resource.',
  408: 'The content did not arrive in time.',
  413: 'The content is too large.',
  416: 'The range is not satisfiable.',
  422: 'The body is JSON but not valid: a list where fields are missing or of the wrong type, a sentence for the rest.',
  429: 'A limit of the user is reached.',
  502: 'The sandbox upstream does not answer, or with an error.',
  503: 'Not ready.',
} as const;

/** Describes an operation's name, body and errors for the OpenAPI document. */
export function Operation({
  id,
  body,
  forOperators,
  refusals = {},
}: OperationOptions): MethodDecorator {
  return applyDecorators(
    ApiOperation({ operationId: id }),
    ...(body ? [TakesBody(), ApiBody({ type: body.type, examples: named(body.examples) })] : []),
    ...(forOperators ? [OperatorRoute({ takesBody: body !== undefined })] : []),
    ...Object.entries(forOperators ? forEverybodyElse(refusals) : refusals).map(
      ([status, sentences]) =>
        ApiResponse({
          status: Number(status),
          description: REFUSALS[status as '404'],
          ...refusalBody(Number(status), sentences),
        }),
    ),
  );
}

/** For everybody else these routes are not there. */
function forEverybodyElse(refusals: NonNullable<OperationOptions['refusals']>) {
  return { ...refusals, 404: [...(refusals[404] ?? []), 'Not found'] };
}

function refusalBody(status: number, sentences: readonly string[]) {
  const details = sentences.map((detail): [string, object] => [detail, { detail }]);
  if (status === 429) {
    const examples = details.map(([name, body]) => [name, { ...body, limit: 10, active: 10 }]);
    return { type: LimitReachedResponse, examples: summarized(Object.fromEntries(examples)) };
  }
  if (status === 422) {
    const examples = {
      'Fields that are missing or of the wrong type': INVALID_FIELDS,
      ...Object.fromEntries(details),
    };
    return { type: UnprocessableResponse, examples: summarized(examples) };
  }
  return { type: DetailResponse, examples: summarized(Object.fromEntries(details)) };
}

/** Example of the answer to a body of the wrong shape. */
export const INVALID_FIELDS: ValidationFailureResponse = {
  detail: [{ type: 'missing', loc: ['body', 'name'], msg: 'Field required' }],
};

const named = (values: Record<string, unknown>) =>
  Object.fromEntries(
    Object.entries(values).map(([summary, value]) => [keyOf(summary), { summary, value }]),
  );

const summarized = (values: Record<string, unknown>) =>
  named(values) as Record<string, { summary: string; value: unknown }>;

/** Makes an identifier of a summary, because generators use the keys of examples as identifiers. */
const keyOf = (summary: string) =>
  summary
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '_')
    .replaceAll(/^_+|_+$/g, '');
