import { join } from 'node:path';
import type { NpmProgram } from '../../npm-program.js';
import type { Host } from '../host.js';
import type { LocalSandboxOptions } from '../options.js';
import type { Spawner } from '../spawner/spawner.js';
import { ensurePrograms } from './ensure-programs.js';

/** The programs that sandboxes are given, installed once and shared by all of them. */
export class ProgramStore {
  /** @param user the kernel user that installs, where the service is root; `null` for the service's own */
  constructor(
    private readonly host: Host,
    private readonly spawner: Spawner,
    private readonly options: LocalSandboxOptions,
    private readonly user: () => number | null,
  ) {}

  /** Where the programs are, installed first if they are not there. `null` if there are none to give. */
  async folder(
    programs: readonly NpmProgram[] | undefined,
    signal: AbortSignal,
  ): Promise<string | null> {
    if (programs === undefined) return null;
    const { stateDir, programsDir, nodePath, toolsDir, npmEnv } = this.options;
    return ensurePrograms({
      dir: programsDir ?? join(stateDir, '.programs'),
      programs,
      signal,
      host: this.host,
      spawner: this.spawner,
      user: this.user(),
      nodePath: nodePath ?? process.execPath,
      toolsDir: toolsDir ?? null,
      ...(npmEnv === undefined ? {} : { npmEnv }),
    });
  }
}

/** A command that ends with 0 if all these names are on the PATH. */
export function lookUp(names: readonly string[]): string[] {
  const script = 'for name; do command -v -- "$name" >/dev/null || exit 1; done';
  return ['/bin/bash', '--norc', '-c', script, 'bash', ...names];
}
