/**
 * What a service throws when it refuses a request. The message is the exact sentence that the client reads in `detail`;
 * only the exception filter knows which status belongs to which kind.
 */
export type DomainErrorKind =
  | 'bad_request'
  | 'unauthorized'
  | 'not_found'
  | 'conflict'
  | 'unprocessable'
  | 'too_large'
  | 'too_late'
  | 'limit_reached'
  | 'upstream'
  | 'unavailable';

export class DomainError extends Error {
  /** After how many seconds the client should try again; sent as `Retry-After`. */
  readonly retryAfterSeconds: number | undefined;

  constructor(
    readonly kind: DomainErrorKind,
    message: string,
    /** Further members of the error body. */
    readonly extra: Readonly<Record<string, number>> = {},
    options: { cause?: unknown; retryAfterSeconds?: number } = {},
  ) {
    super(message, options);
    this.name = 'DomainError';
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}

export const badRequest = (detail: string) => new DomainError('bad_request', detail);
export const unauthorized = (detail: string) => new DomainError('unauthorized', detail);
export const notFound = (detail: string) => new DomainError('not_found', detail);
export const conflict = (detail: string) => new DomainError('conflict', detail);
export const unprocessable = (detail: string) => new DomainError('unprocessable', detail);
export const tooLate = (detail: string) => new DomainError('too_late', detail);
export const tooLarge = (detail: string) => new DomainError('too_large', detail);
export const upstream = (detail: string, cause?: unknown) =>
  new DomainError('upstream', detail, {}, { cause });

/** 429: the user has as many active sessions as the limit allows. */
export const limitReached = (limit: number, active: number) =>
  new DomainError(
    'limit_reached',
    `Concurrent session limit reached (${active} of ${limit} active). Terminate an active session first.`,
    { limit, active },
  );

/** 429: the user has sent as many requests in this minute as the limit allows. */
export const requestLimitReached = (limit: number, retryAfterSeconds: number) =>
  new DomainError(
    'limit_reached',
    `Request limit reached (${limit} requests a minute). Try again in ${retryAfterSeconds} seconds.`,
    { limit, active: limit },
    { retryAfterSeconds },
  );

/** 429: the user has as many open streams as the limit allows. */
export const streamLimitReached = (limit: number, active: number) =>
  new DomainError(
    'limit_reached',
    `Concurrent stream limit reached (${active} of ${limit} open). Close a stream first.`,
    { limit, active },
  );

/** 429: the user reads or writes as many files as one user may at the same time. */
export const fileLimitReached = (limit: number, active: number) =>
  new DomainError(
    'limit_reached',
    `Concurrent file access limit reached (${active} of ${limit} open). Let one end first.`,
    { limit, active },
    { retryAfterSeconds: 1 },
  );

/** 429: all users together access as many files as this process can. Other limits are the user's own, this is not. */
export const sharedFileLimitReached = (limit: number, active: number) =>
  new DomainError(
    'limit_reached',
    `The service is busy: all users together access ${active} of ${limit} files. Try again in a second.`,
    { limit, active },
    { retryAfterSeconds: 1 },
  );

/** One item of the list in a 422: where in the body, and what is wrong. Never contains the submitted value. */
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
