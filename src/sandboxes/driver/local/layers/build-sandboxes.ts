import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ifMissing } from '../../../../common/missing-file.js';
import {
  identifyProcess,
  isProcessAlive,
  type ProcessIdentity,
} from '../../../../supervisor/processes.js';

/**
 * The sandboxes in which processes of this host build layers. They belong to no session, and are no orphans while the
 * process that builds in them is alive.
 */
export class BuildSandboxes {
  constructor(private readonly folder: string) {}

  /** Notes a sandbox, before it is made. */
  async begin(sandboxId: string): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const owner = JSON.stringify(identifyProcess(process.pid));
    await writeFile(join(this.folder, sandboxId), owner, { mode: 0o600 });
  }

  /** Forgets a sandbox that is gone. */
  async end(sandboxId: string): Promise<void> {
    await rm(join(this.folder, sandboxId), { force: true });
  }

  /** The sandboxes in which a process may be building. */
  async active(): Promise<Set<string>> {
    return new Set(await this.noted(true));
  }

  /** The sandboxes of processes that are gone. */
  abandoned(): Promise<string[]> {
    return this.noted(false);
  }

  private async noted(alive: boolean): Promise<string[]> {
    const found: string[] = [];
    for (const name of await readdir(this.folder).catch(ifMissing<string[]>([]))) {
      const text = await readFile(join(this.folder, name), 'utf8').catch(ifMissing(undefined));
      if (text !== undefined && mayBeAlive(text) === alive) found.push(name);
    }
    return found;
  }
}

/** False only where it is certain that the process is gone. */
function mayBeAlive(text: string): boolean {
  try {
    const owner = JSON.parse(text) as ProcessIdentity | null;
    return owner === null || isProcessAlive(owner);
  } catch {
    // The file is being written, or the system does not say.
    return true;
  }
}
