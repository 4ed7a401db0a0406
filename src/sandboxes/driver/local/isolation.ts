import type { Confinement } from '../../../supervisor/confine.js';
import type { PlainStage, StrictStage } from '../../../supervisor/launch-request.js';
import { Relay } from '../../../supervisor/relay/relay.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { SeccompProfile } from '../../../supervisor/seccomp/profiles.js';
import type { NetworkPolicy, SandboxLayout } from '../sandbox-driver.js';
import type { View } from './bwrap-arguments.js';
import type { LocalSandboxOptions } from './options.js';
import type { SandboxFolder, SandboxRecord } from './sandbox-store.js';

/**
 * A task inside a sandbox without a supervisor, done by `confine` itself. It runs no program of the sandbox, not even a
 * shell, because the tenant may have replaced it.
 */
export interface InsideTask extends Pick<Confinement, 'writeFiles' | 'lookUp' | 'files'> {
  operands?: readonly string[];
}

/** A command for a task that needs neither network nor supervisor; see `runInside`. */
export interface InsideCommand {
  argv: readonly string[];
  descriptors: readonly (string | Buffer)[];
  env?: Readonly<Record<string, string>>;
  cwd?: string;
}

/** How a sandbox is isolated, for its supervisor. */
export interface IsolatedSupervisor {
  /** The command prefix that starts the supervisor as the right user. */
  prefix: readonly string[];
  /** Paths as the supervisor sees them. */
  view: View;
  stage: StrictStage | PlainStage;
  environment: Record<string, string>;
}

/** How sandboxes are isolated: strict (namespaces) or degraded (users alone). */
export interface Isolation {
  layout(folder: SandboxFolder): SandboxLayout;
  /** The user of supervisors, `null` for the service's own. */
  supervisorUser(record: SandboxRecord): number | null;
  /** @param programs the folder of the programs that are provided to the sandbox */
  isolate(
    folder: SandboxFolder,
    record: SandboxRecord,
    profile: SeccompProfile,
    programs: string | null,
  ): IsolatedSupervisor;
  inside(folder: SandboxFolder, record: SandboxRecord, task: InsideTask): InsideCommand;
}

/**
 * Makes the relay that a supervisor will run. Also used only to validate a policy.
 * @throws SandboxError `failed` for a policy that cannot be applied
 */
export function relayFor(
  policy: NetworkPolicy,
  { gateways, network }: Pick<LocalSandboxOptions, 'gateways' | 'network'>,
): Relay {
  try {
    return new Relay({ policy, gateways, privateHosts: network?.privateHosts });
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

/** A policy that allows nothing, for probes. */
export const NO_NETWORK: NetworkPolicy = { mode: 'limited', allowedHosts: [] };
