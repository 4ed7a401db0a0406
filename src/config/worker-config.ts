import { readAddress } from './gateway-config.js';
import { ConfigError, type EnvironmentReader } from './parse.js';

/** Where a worker serves the files of its sandboxes to processes on other hosts. */
export interface WorkerAddress {
  /** Where the other processes reach it. With the port 0, the one that the worker listens on takes its place. */
  url: string;
  /** The port to listen on, on `HOST`. */
  port: number;
}

/** @throws ConfigError if a part of it is not valid */
export function readWorkerAddress(read: EnvironmentReader): WorkerAddress | undefined {
  const url = readAddress(read, 'WORKER_URL');
  const range = { min: 0, max: 65_535 };
  if (url === undefined) {
    if (read.text('WORKER_PORT') !== undefined)
      throw new ConfigError('WORKER_PORT', 'needs WORKER_URL, the address for other processes');
    return undefined;
  }
  const { port, protocol } = new URL(url);
  const usual = protocol === 'https:' ? 443 : 80;
  return { url, port: read.integer('WORKER_PORT', port === '' ? usual : Number(port), range) };
}
