import { realpathSync } from 'node:fs';
import type { NetworkPolicy, SandboxLayout } from '../sandbox-driver.js';
import { SandboxError } from '../sandbox-error.js';
import { baseEnvironment, hostEtcEntries, PROGRAMS, TOOLS } from './base-files.js';
import { HOME, WORKSPACE } from '../shared/layout.js';
import { nestArguments, sandboxArguments, type SystemRoot, type View } from './bwrap-arguments.js';
import { becomeUser, entryFor } from './entry.js';
import { systemFolders, type Host } from './host.js';
import { packageRoot } from '../shared/package-root.js';
import type { PlainStage, StrictStage } from '../shared/launch/launch-request.js';
import type { LocalSandboxOptions } from './options.js';
import type { Gateway } from '../shared/relay/gateways.js';
import { hiddenFolders } from './paths.js';
import { Relay } from '../shared/relay/relay.js';
import type { SandboxFolder, SandboxRecord } from './sandbox-store.js';
import { seccompFilter, type SeccompProfile } from '../shared/seccomp/profiles.js';

/** The short way in, for a trusted command that needs neither network nor supervisor; see `runInside`. */
export interface InsideCommand {
  argv: readonly string[];
  descriptors: readonly (string | Buffer)[];
  env?: Readonly<Record<string, string>>;
  cwd?: string;
}

/** All that a supervisor has to be told about how this sandbox is isolated. */
export interface Enclosed {
  /** Makes the supervisor a process of the right user. */
  prefix: readonly string[];
  /** Paths as the supervisor sees them. */
  view: View;
  stage: StrictStage | PlainStage;
  environment: Record<string, string>;
}

/** What "inside" means: the strict way by namespaces, or the degraded one by users alone. */
export interface Enclosure {
  layout(folder: SandboxFolder): SandboxLayout;
  /** The user that supervisors run as, `null` for the service's own. */
  supervisorUser(record: SandboxRecord): number | null;
  /** @param programs the folder of the programs that the sandbox is given */
  enclose(
    folder: SandboxFolder,
    record: SandboxRecord,
    profile: SeccompProfile,
    programs: string | null,
  ): Enclosed;
  inside(folder: SandboxFolder, record: SandboxRecord, command: readonly string[]): InsideCommand;
}

const RUN_SANDBOX = 'exec "$0" --args 3 --seccomp 4 -- "$@"';

export class StrictEnclosure implements Enclosure {
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

  enclose(
    folder: SandboxFolder,
    record: SandboxRecord,
    profile: SeccompProfile,
    programs: string | null,
  ): Enclosed {
    const origin = this.origin(folder, programs);
    const { prefix, view } = entryFor(this.host, origin, record.uid, false);
    return {
      prefix,
      view,
      stage: {
        kind: 'strict',
        nest: [this.bwrap(), ...nestArguments()],
        sandbox: this.sandbox(folder, record, profile, view),
        seccomp: seccompFilter(profile, process.arch).toString('base64'),
        node: view.node,
        listenerArguments: relayFor(record.network, this.options.gateways).listenerArgs(),
        network: record.network,
        gateways: this.options.gateways,
      },
      environment: baseEnvironment(
        HOME,
        profile === 'setup' ? 'root' : 'agent',
        this.tools(),
        programs === null ? null : PROGRAMS,
      ),
    };
  }

  inside(folder: SandboxFolder, record: SandboxRecord, command: readonly string[]): InsideCommand {
    const { prefix, view } = entryFor(this.host, this.origin(folder, null), record.uid, true);
    const environment = Object.entries(baseEnvironment(HOME, 'agent', this.tools(), null)).flatMap(
      ([name, value]) => ['--setenv', name, value],
    );
    const args = this.sandbox(folder, record, 'agent', view).concat(
      ['--clearenv', '--chdir', '/'],
      environment,
    );
    const bwrap = this.bwrap();
    return {
      argv: prefix.concat([
        bwrap,
        ...nestArguments(),
        '--',
        '/bin/sh',
        '-c',
        RUN_SANDBOX,
        bwrap,
        ...command,
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
          entries: systemFolders(folder.rootfs),
          folders: ['/usr', '/etc', '/var', '/opt', '/root', '/srv'],
        }
      : this.hostRoot;
    return sandboxArguments({ profile, root, view, limits: this.options.limits });
  }

  private origin(folder: SandboxFolder, programs: string | null): View {
    return {
      node: realpathSync(this.options.nodePath),
      app: packageRoot(),
      sandbox: folder.path,
      etc: this.etc,
      tools: this.options.toolsDir ?? null,
      programs,
    };
  }

  private tools(): string | null {
    return this.options.toolsDir === undefined ? null : TOOLS;
  }

  private bwrap(): string {
    if (this.host.bwrap === null) throw new SandboxError('unavailable', 'bwrap is not installed');
    return this.host.bwrap;
  }
}

export class DegradedEnclosure implements Enclosure {
  constructor(
    private readonly host: Host,
    private readonly options: LocalSandboxOptions & { nodePath: string },
  ) {}

  layout(folder: SandboxFolder): SandboxLayout {
    return { home: folder.home, workspace: folder.workspace };
  }

  supervisorUser(): null {
    // Where the service is root, so is the supervisor: the agent can neither kill it nor touch its spool.
    return null;
  }

  enclose(
    folder: SandboxFolder,
    record: SandboxRecord,
    _profile: SeccompProfile,
    programs: string | null,
  ): Enclosed {
    const app = packageRoot();
    return {
      prefix: [],
      view: {
        node: realpathSync(this.options.nodePath),
        app,
        sandbox: folder.path,
        etc: '',
        tools: null,
        programs: null,
      },
      // Processes are counted per user: without one of its own the limit would count everything the operator runs.
      stage: {
        kind: 'plain',
        prefix: this.prefix(record),
        uid: record.uid,
        limitProcesses: record.uid !== null,
      },
      environment: this.environment(folder, programs),
    };
  }

  inside(folder: SandboxFolder, record: SandboxRecord, command: readonly string[]): InsideCommand {
    const { home } = folder;
    return {
      argv: [...this.prefix(record), ...command],
      descriptors: [],
      env: this.environment(folder, null),
      cwd: record.uid === null ? home : '/',
    };
  }

  private prefix(record: SandboxRecord): string[] {
    const { setpriv } = this.host;
    if (setpriv === null) {
      if (record.uid === null) return [];
      throw new SandboxError('unavailable', 'setpriv is not installed: install util-linux');
    }
    const tied = ['--no-new-privs', '--pdeathsig', 'KILL', '--'];
    if (record.uid === null) return [setpriv, ...tied];
    return [...becomeUser(setpriv, record.uid).slice(0, -1), '--bounding-set=-all', ...tied];
  }

  private environment(folder: SandboxFolder, programs: string | null): Record<string, string> {
    return baseEnvironment(folder.home, 'agent', this.options.toolsDir ?? null, programs);
  }
}

/**
 * The relay that a supervisor will run; made here only to see whether it can be.
 * @throws SandboxError `failed` for a policy that cannot be applied
 */
export function relayFor(policy: NetworkPolicy, gateways: readonly Gateway[]): Relay {
  try {
    return new Relay({ policy, gateways });
  } catch (error) {
    throw new SandboxError(
      'failed',
      `the network policy cannot be applied: ${(error as Error).message}`,
      {
        cause: error,
      },
    );
  }
}

/** Closed to all: what a probe gets. */
export const NO_NETWORK: NetworkPolicy = { mode: 'limited', allowedHosts: [] };
