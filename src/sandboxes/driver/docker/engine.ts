import { join } from 'node:path';
import Docker from 'dockerode';
import { readConfiguredFile } from '../../../common/configured-file.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { EngineAddress } from './options.js';

/**
 * A client of the engine, which connects on first use.
 * @throws SandboxError `unavailable` if the address or the certificates are invalid
 */
export function connectEngine({ host, certPath }: EngineAddress): Docker {
  const url = URL.canParse(host) ? new URL(host) : undefined;
  if (url?.protocol === 'unix:') {
    return new Docker({ socketPath: url.pathname });
  }
  if (url === undefined || !['tcp:', 'http:', 'https:'].includes(url.protocol)) {
    throw new SandboxError('unavailable', `DOCKER_HOST cannot be used: ${host}`);
  }
  const address = { host: url.hostname, port: url.port };
  if (certPath === undefined) {
    return new Docker({ ...address, protocol: url.protocol === 'https:' ? 'https' : 'http' });
  }
  const read = (name: string): string => {
    try {
      return readConfiguredFile(join(certPath, name));
    } catch (error) {
      throw new SandboxError(
        'unavailable',
        `DOCKER_CERT_PATH: ${join(certPath, name)} cannot be read`,
        { cause: error },
      );
    }
  };
  return new Docker({
    ...address,
    protocol: 'https',
    ca: read('ca.pem'),
    cert: read('cert.pem'),
    key: read('key.pem'),
  });
}

/** The HTTP status of the engine's error; `undefined` if the engine was not reached. */
export function statusOf(error: unknown): number | undefined {
  const status = (error as { statusCode?: unknown } | null)?.statusCode;
  return typeof status === 'number' ? status : undefined;
}

/** For `catch`: ignores errors with these statuses, which mean that there is nothing (left) to do. */
export function unless<T>(statuses: readonly number[], value: T): (error: unknown) => T {
  return (error) => {
    if (statuses.includes(statusOf(error) ?? 0)) return value;
    throw error;
  };
}

/** Whether the engine did not answer or failed internally, as opposed to rejecting the request. */
export function isEngineAway(error: unknown): boolean {
  if (error instanceof SandboxError) return error.kind === 'unavailable';
  const status = statusOf(error);
  if (status !== undefined) return status >= 500;
  return (error as NodeJS.ErrnoException).code !== undefined;
}

/**
 * Limits the time to wait for the engine, because a hung engine accepts requests and never answers.
 * @throws SandboxError `unavailable`
 */
export async function inTime<T>(
  answer: Promise<T>,
  options: { host: string; ms?: number; signal?: AbortSignal },
): Promise<T> {
  const { host, ms, signal } = options;
  let giveUp: () => void = () => undefined;
  const silence = new Promise<never>((_, reject) => {
    giveUp = () =>
      reject(
        new SandboxError('unavailable', `the Docker engine at ${host} does not answer in time`),
      );
  });
  // The request may still fail after the timeout; that error is ignored.
  answer.catch(() => undefined);
  const timer = ms === undefined ? undefined : setTimeout(giveUp, ms);
  signal?.addEventListener('abort', giveUp, { once: true });
  if (signal?.aborted) giveUp();
  try {
    return await Promise.race([answer, silence]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', giveUp);
  }
}

/**
 * Converts a failed request to the engine to an error for clients. The message names no files of the service's host.
 */
export function translate(error: unknown, host: string): SandboxError {
  if (error instanceof SandboxError) return error;
  const { name, code, message } = error as NodeJS.ErrnoException;
  if (name === 'AbortError' || name === 'TimeoutError') {
    return new SandboxError('aborted', 'the operation was aborted', { cause: error });
  }
  const status = statusOf(error);
  if (status === undefined && code !== undefined) {
    const cause = message.includes(code) ? message : `${code}: ${message}`;
    return new SandboxError(
      'unavailable',
      `the Docker engine at ${host} does not answer: ${cause}`,
      {
        cause: error,
      },
    );
  }
  const said = (error as { json?: { message?: string } }).json?.message ?? message;
  return new SandboxError('failed', `the Docker engine refused: ${said.slice(0, 300)}`, {
    cause: error,
  });
}
