import { randomUUID } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Injection token of the one {@link SandboxDriver} that configuration chose. */
export const SANDBOX_DRIVER = Symbol('sandbox driver');

/**
 * Where this process's driver keeps its sandboxes: the name of a host, or `null` when they are reachable from every
 * process. A class so that it can be injected.
 */
export class SandboxHost {
  constructor(readonly name: string | null) {}
}

/** The lasting name of this installation's data folder, made on first use. */
export async function loadHostName(dataDir: string): Promise<string> {
  const path = join(dataDir, 'host-id');
  await mkdir(dataDir, { recursive: true });
  const draft = `${path}.${randomUUID()}.new`;
  await writeFile(draft, `${randomUUID()}\n`);
  // link, unlike rename, leaves a name that somebody else made first alone.
  await link(draft, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  await rm(draft, { force: true });
  return (await readFile(path, 'utf8')).trim();
}
