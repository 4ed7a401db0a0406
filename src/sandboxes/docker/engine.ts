import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import Docker from 'dockerode';
import { SandboxError } from '../sandbox-error.js';
import type { EngineAddress } from './options.js';

/**
 * A client of the engine; connects when it is used.
 * @throws SandboxError `unavailable` when the address or the certificates cannot be used
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
  const read = (name: string): Buffer => {
    try {
      return readFileSync(join(certPath, name));
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

/** The HTTP status with which the engine refused; `undefined`: it was not reached. */
export function statusOf(error: unknown): number | undefined {
  const status = (error as { statusCode?: unknown } | null)?.statusCode;
  return typeof status === 'number' ? status : undefined;
}

/** For `catch`: statuses that mean that there is nothing (left) to do. */
export function unless<T>(statuses: readonly number[], value: T): (error: unknown) => T {
  return (error) => {
    if (statuses.includes(statusOf(error) ?? 0)) return value;
    throw error;
  };
}

/** Did the engine not answer at all, rather than refuse? */
export function isEngineAway(error: unknown): boolean {
  if (error instanceof SandboxError) return error.kind === 'unavailable';
  return statusOf(error) === undefined && (error as NodeJS.ErrnoException).code !== undefined;
}

/** What a failed request to the engine comes to, in words for clients. Names no file of the service's host. */
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
