import { realpathSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../common/package-root.js';
import { confine, confineProgram } from '../../../supervisor/confine.js';
import { seccompFilter, type SeccompProfile } from '../../../supervisor/seccomp/profiles.js';
import type { SandboxLayout } from '../sandbox-driver.js';
import { baseEnvironment, CERTIFICATES_FILE } from './base-files.js';
import { mountedEntry } from './disk-images.js';
import type { IsolatedSupervisor, Isolation, InsideCommand, InsideTask } from './isolation.js';
import { isWithin, type Host } from './host.js';
import type { LocalSandboxOptions } from './options.js';
import type { SandboxFolder, SandboxRecord } from './sandbox-store.js';

/** Isolates by kernel users and limits alone. */
export class DegradedIsolation implements Isolation {
  constructor(
    private readonly host: Host,
    private readonly options: LocalSandboxOptions & { nodePath: string },
    private readonly etc: string,
  ) {}

  layout(folder: SandboxFolder): SandboxLayout {
    return { home: folder.home, workspace: folder.workspace };
  }

  supervisorUser(): null {
    // If the service is root, so is the supervisor: the agent can neither kill it nor change its spool.
    return null;
  }

  isolate(
    folder: SandboxFolder,
    record: SandboxRecord,
    _profile: SeccompProfile,
    programs: string | null,
  ): IsolatedSupervisor {
    const app = packageRoot();
    return {
      prefix: this.mounts(folder, record),
      view: {
        node: realpathSync(this.options.nodePath),
        app,
        sandbox: folder.path,
        etc: '',
        tools: null,
        programs: null,
        gateway: null,
      },
      // The kernel counts processes per user. Without a user of its own, the limit would count everything the operator
      // runs.
      stage: {
        kind: 'plain',
        confine: this.program(),
        keepCapabilities: false,
        uid: record.uid,
        limitProcesses: record.uid !== null,
      },
      environment: this.environment(folder, programs),
    };
  }

  inside(
    folder: SandboxFolder,
    record: SandboxRecord,
    { operands = [], ...task }: InsideTask,
  ): InsideCommand {
    const { home } = folder;
    return {
      argv: [
        ...this.mounts(folder, record),
        ...confine(this.program(), {
          close: true,
          limits: this.options.limits,
          limitProcesses: record.uid !== null,
          user: record.uid,
          dropCapabilities: true,
          noNewPrivileges: true,
          dieWithParent: true,
          seccomp: 3,
          ...task,
        }),
        ...operands,
      ],
      descriptors: [seccompFilter('agent', process.arch)],
      env: this.environment(folder, null),
      cwd: record.uid === null ? home : '/',
    };
  }

  private program(): string {
    return confineProgram(packageRoot());
  }

  /** The command prefix that mounts the sandbox's image and, if possible, its own /tmp. */
  private mounts(folder: SandboxFolder, record: SandboxRecord): string[] {
    if (!this.hasOwnTmp()) return folder.entry(record);
    const image = record.disk === 'image' ? { image: folder.image, target: folder.files } : {};
    const tmp = { folder: folder.tmp, shmBytes: this.options.limits.tmpBytes };
    return mountedEntry({ ...image, tmp });
  }

  /** False if files of the service are below /tmp, which the mount would hide. */
  private hasOwnTmp(): boolean {
    const { stateDir, nodePath, toolsDir = '/', programsDir = '/' } = this.options;
    const needed = [stateDir, toolsDir, programsDir, packageRoot(), realpathSync(nodePath)];
    const covered = (path: string) => ['/tmp', '/var/tmp'].some((tmp) => isWithin(path, tmp));
    return this.host.root && this.host.mounts && !needed.some(covered);
  }

  private environment(folder: SandboxFolder, programs: string | null): Record<string, string> {
    const { toolsDir = null, network } = this.options;
    const certificates = network?.certificates ? join(this.etc, CERTIFICATES_FILE) : null;
    return {
      ...baseEnvironment(folder.home, 'agent', toolsDir, programs, certificates),
      ...(!this.hasOwnTmp() && { TMPDIR: folder.tmp }),
    };
  }
}
