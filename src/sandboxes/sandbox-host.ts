import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { readOrCreate } from '../common/files.js';

/** Injection token of the one {@link SandboxDriver} that configuration chose. */
export const SANDBOX_DRIVER = Symbol('sandbox driver');

/**
 * Where this process's driver keeps its sandboxes: the name of a host, or `null` when they are reachable from every
 * process. A class so that it can be injected.
 */
export class SandboxHost {
  constructor(readonly name: string | null) {}
}

/** Where sandboxes are, according to their records. */
export interface SandboxPlace {
  driver: string;
  /** `null`: reachable from each worker of the driver. */
  host: string | null;
}

/** The lasting name of this installation's data folder, made on first use. */
export async function loadHostName(dataDir: string): Promise<string> {
  const text = await readOrCreate(join(dataDir, 'host-id'), () => `${randomUUID()}\n`);
  return text.trim();
}
