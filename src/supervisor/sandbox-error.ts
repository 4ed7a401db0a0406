/**
 * The kind of an error, which decides what the service does next:
 * - `unavailable`: no sandboxes can be created now (engine down, no namespaces on this host).
 * - `gone`: this sandbox does not exist (any more).
 * - `unsupported`: the driver does not support the request (e.g. `limited` networking without a network namespace).
 * - `failed`: the operation was tried and failed; the message says why.
 * - `aborted`: the caller's AbortSignal fired.
 * - `missing`: there is no such file in the sandbox, or its path leads out of home and workspace.
 * - `conflict`: what is at a path does not allow the operation.
 * - `full`: a file does not fit on the disk of the sandbox.
 */
export const SANDBOX_ERROR_KINDS = [
  'unavailable',
  'gone',
  'unsupported',
  'failed',
  'aborted',
  'missing',
  'conflict',
  'full',
] as const;
export type SandboxErrorKind = (typeof SANDBOX_ERROR_KINDS)[number];

/**
 * The only error that a {@link SandboxDriver} throws deliberately. `message` is short, contains no secrets, and is
 * shown to clients.
 */
export class SandboxError extends Error {
  constructor(
    readonly kind: SandboxErrorKind,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = 'SandboxError';
  }
}

/** Whether a signal fired because of a timeout instead of an abort by the caller. */
export function isTimeout({ reason }: AbortSignal): boolean {
  return (reason as { name?: unknown } | undefined)?.name === 'TimeoutError';
}

/** @throws SandboxError `aborted` if the signal has fired */
export function requireNotAborted(signal: AbortSignal): void {
  if (signal.aborted) throw new SandboxError('aborted', 'the operation was aborted');
}

/**
 * System errors that say nothing about the requested file or process: this process is out of descriptors or memory, the
 * disk does not respond, or a permission is missing temporarily.
 */
const NOTHING_SAID = new Set([
  'EMFILE',
  'ENFILE',
  'ENOMEM',
  'EIO',
  'EACCES',
  'EPERM',
  'EAGAIN',
  'EINTR',
  'ENOBUFS',
  'ESTALE',
  'ETIMEDOUT',
  'ENODEV',
  'ENXIO',
  'EHOSTDOWN',
  'ECONNRESET',
  'ECONNREFUSED',
  'EPIPE',
]);

/** Whether this error leaves it unknown if a file exists or a process runs. Callers must not assume either. */
export function saysNothing(error: unknown): boolean {
  if (error instanceof SandboxError) return error.kind === 'unavailable';
  return NOTHING_SAID.has(String((error as { code?: unknown } | null)?.code));
}

/** For `catch` in drivers: converts such an error to a SandboxError and returns other errors unchanged. */
export function asUnavailable(error: unknown): unknown {
  if (error instanceof SandboxError || !saysNothing(error)) return error;
  const { code = '', syscall = '' } = error as NodeJS.ErrnoException;
  // Omits the path, because clients see the message.
  return new SandboxError(
    'unavailable',
    `the state of the sandbox is unknown: ${code} in ${syscall}`,
    { cause: error },
  );
}

/** Reports states that a driver cannot determine, once when that begins and once when it is over. */
export interface UnknownStates {
  began(what: string, error: unknown): void;
  ended(what: string): void;
}

/** Reports that one object's state is unknown, and when it is known again. */
export class UnknownState {
  private isUnknown = false;

  constructor(
    private readonly what: string,
    private readonly report: UnknownStates | undefined,
  ) {}

  /** The state is unknown. */
  note(error: unknown): void {
    if (!this.isUnknown) this.report?.began(this.what, error);
    this.isUnknown = true;
  }

  /** The state is known, or no longer needed. */
  clear(): void {
    if (this.isUnknown) this.report?.ended(this.what);
    this.isUnknown = false;
  }
}

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export function isId(text: string): boolean {
  return ID.test(text);
}

/** Validates an id, because ids become folder names. */
export function requireId(text: string): string {
  if (!isId(text)) throw new SandboxError('failed', 'not a sandbox or launch id');
  return text;
}
