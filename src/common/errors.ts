/**
 * What a service throws when it refuses a request. The message is the exact sentence that the client reads in `detail`;
 * only the exception filter knows which status belongs to which kind.
 */
export type RefusalKind =
  | 'bad_request'
  | 'unauthorized'
  | 'not_found'
  | 'conflict'
  | 'unprocessable'
  | 'limit_reached'
  | 'upstream'
  | 'unavailable';

export class Refusal extends Error {
  constructor(
    readonly kind: RefusalKind,
    message: string,
    /** Further members of the error body. */
    readonly extra: Readonly<Record<string, number>> = {},
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = 'Refusal';
  }
}

export const badRequest = (detail: string) => new Refusal('bad_request', detail);
export const unauthorized = (detail: string) => new Refusal('unauthorized', detail);
export const notFound = (detail: string) => new Refusal('not_found', detail);
export const conflict = (detail: string) => new Refusal('conflict', detail);
export const unprocessable = (detail: string) => new Refusal('unprocessable', detail);
export const upstream = (detail: string, cause?: unknown) =>
  new Refusal('upstream', detail, {}, { cause });

/** 429: the user's concurrent sessions are used up. */
export const limitReached = (limit: number, active: number) =>
  new Refusal(
    'limit_reached',
    `Concurrent session limit reached (${active} of ${limit} active). Terminate an active session first.`,
    { limit, active },
  );

/** One item of a 422's list: where in the body, what is wrong. Never the submitted value. */
export interface ValidationItem {
  /** A stable code: `missing`, `string_type`, `int_type`, … */
  type: string;
  loc: (string | number)[];
  msg: string;
}

/** 422 whose `detail` is a list: the body's shape is wrong. */
export class InvalidBody extends Error {
  constructor(readonly items: readonly ValidationItem[]) {
    super('The request body is invalid');
    this.name = 'InvalidBody';
  }
}
