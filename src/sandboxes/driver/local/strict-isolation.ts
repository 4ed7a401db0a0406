import { realpathSync } from 'node:fs';
import { basename, join } from 'node:path';
import { packageRoot } from '../../../common/package-root.js';
import { confine, listenProgram } from '../../../supervisor/confine.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { HOME, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import { seccompFilter, type SeccompProfile } from '../../../supervisor/seccomp/profiles.js';
import type { SandboxLayout } from '../sandbox-driver.js';
import {
  baseEnvironment,
  CERTIFICATES,
  CONFINE,
  hostEtcEntries,
  PROGRAMS,
  TOOLS,
} from './base-files.js';
import { nestArguments, sandboxArguments, type SystemRoot, type View } from './bwrap-arguments.js';
import {
  relayFor,
  type IsolatedSupervisor,
  type Isolation,
  type InsideCommand,
  type InsideTask,
} from './isolation.js';
import { entryFor } from './entry.js';
import { systemFolders, type Host } from './host.js';
import { type LocalSandboxOptions, hiddenFolders } from './options.js';
import type { SandboxFolder, SandboxRecord } from './sandbox-store.js';

const RUN_SANDBOX = 'exec "$0" --args 3 --seccomp 4 -- "$@"';

/** Isolates by namespaces that bubblewrap makes. */
export class StrictIsolation implements Isolation {
  private readonly hostRoot: SystemRoot;

  constructor(
    private readonly host: Host,
    private readonly options: LocalSandboxOptions & { nodePath: string },
    private readonly etc: string,
  ) {
    this.hostRoot = {
      kind: 'host',
      entries: systemFolders('/'),
      etc: hostEtcEntries(),
      hidden: hiddenFolders(options.stateDir),
    };
  }

  layout(): SandboxLayout {
    return { home: HOME, workspace: WORKSPACE };
  }

  supervisorUser(record: SandboxRecord): number | null {
    return record.uid;
  }

  isolate(
    folder: SandboxFolder,
    record: SandboxRecord,
    profile: SeccompProfile,
    programs: string | null,
  ): IsolatedSupervisor {
    const origin = this.origin(folder, programs);
    const { prefix, view } = entryFor(this.host, origin, record.uid, false);
    return {
      prefix: [...folder.entry(record), ...prefix],
      view,
      stage: {
        kind: 'strict',
        nest: [this.bwrap(), ...nestArguments()],
        sandbox: this.sandbox(folder, record, profile, view),
        confine: CONFINE,
        listen: listenProgram(view.app),
        listeners: relayFor(record.network, this.options).listeners,
        network: record.network,
        gateways: this.options.gateways,
        privateHosts: this.options.network?.privateHosts ?? [],
        gateway:
          view.gateway === null
            ? undefined
            : { address: join(view.gateway, 'socket'), sandboxId: basename(folder.path) },
      },
      environment: baseEnvironment(
        HOME,
        profile === 'setup' ? 'root' : 'agent',
        this.tools(),
        programs === null ? null : PROGRAMS,
        this.certificates(),
      ),
    };
  }

  inside(
    folder: SandboxFolder,
    record: SandboxRecord,
    { operands = [], ...task }: InsideTask,
  ): InsideCommand {
    const { prefix, view } = entryFor(this.host, this.origin(folder, null), record.uid, true);
    const environment = Object.entries(
      baseEnvironment(HOME, 'agent', this.tools(), null, this.certificates()),
    ).flatMap(([name, value]) => ['--setenv', name, value]);
    const args = this.sandbox(folder, record, 'agent', view).concat(
      ['--clearenv', '--chdir', '/'],
      environment,
    );
    const bwrap = this.bwrap();
    return {
      argv: [...folder.entry(record), ...prefix].concat([
        bwrap,
        ...nestArguments(),
        '--',
        '/bin/sh',
        '-c',
        RUN_SANDBOX,
        bwrap,
        ...confine(CONFINE, {
          close: true,
          limits: this.options.limits,
          limitProcesses: true,
          ...task,
        }),
        ...operands,
      ]),
      descriptors: [args.join('\0'), seccompFilter('agent', process.arch)],
    };
  }

  private sandbox(
    folder: SandboxFolder,
    record: SandboxRecord,
    profile: SeccompProfile,
    view: View,
  ) {
    const root: SystemRoot = record.writableRoot
      ? {
          kind: 'own',
          entries: record.entries ?? systemFolders(folder.rootfs),
          folders: ['/usr', '/etc', '/var', '/opt', '/root', '/srv'],
        }
      : this.hostRoot;
    return sandboxArguments({
      profile,
      root,
      view,
      folder: folder.seenAt(view.sandbox),
      system: folder.seenAt(view.sandbox).systemOf(record),
      limits: this.options.limits,
      hasCertificates: this.certificates() !== null,
    });
  }

  private origin(folder: SandboxFolder, programs: string | null): View {
    return {
      node: realpathSync(this.options.nodePath),
      app: packageRoot(),
      sandbox: folder.path,
      etc: this.etc,
      tools: this.options.toolsDir ?? null,
      programs,
      gateway: this.options.gateway?.folder ?? null,
    };
  }

  private tools(): string | null {
    return this.options.toolsDir === undefined ? null : TOOLS;
  }

  private certificates(): string | null {
    return this.options.network?.certificates === undefined ? null : CERTIFICATES;
  }

  private bwrap(): string {
    if (this.host.bwrap === null) throw new SandboxError('unavailable', 'bwrap is not installed');
    return this.host.bwrap;
  }
}
