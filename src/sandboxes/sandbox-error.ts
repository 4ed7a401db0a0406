/**
 * What went wrong in a sandbox, in words that decide what the service does next:
 * - `unavailable`: the upstream cannot make sandboxes at all now (engine down, no namespaces on this host).
 * - `gone`: this sandbox does not exist (any more).
 * - `unsupported`: the driver cannot honour what was asked for (e.g. `limited` networking without a network namespace).
 * - `failed`: the operation was tried and failed; the message says why.
 * - `aborted`: the caller's AbortSignal fired.
 */
export type SandboxErrorKind = 'unavailable' | 'gone' | 'unsupported' | 'failed' | 'aborted';

/** The only error that a {@link SandboxDriver} throws on purpose. `message` is short, free of secrets, and shown to clients. */
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
