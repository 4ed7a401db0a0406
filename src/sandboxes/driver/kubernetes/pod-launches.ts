import { CONTAINER_GROUPS } from '../../../supervisor/confine.js';
import type { LaunchRequest } from '../../../supervisor/launch-request.js';
import {
  HOME,
  type SandboxLimits,
  SYSTEM_PATH,
  WORKSPACE,
} from '../../../supervisor/sandbox-options.js';
import { scriptCommand } from '../../../supervisor/scripts.js';
import { seccompFilter } from '../../../supervisor/seccomp/profiles.js';
import type { LaunchOptions } from '../sandbox-driver.js';
import { launchSocket } from './inside/launch-socket.js';
import { USERS } from './options.js';
import { AGENT_PROGRAMS, CONFINE, DISK, SHARED_MEMORY, SOCKETS } from './pod-spec.js';

/** The environment of an agent's processes, before the launch's own variables. */
export function agentEnvironment(): Record<string, string> {
  return {
    PATH: `${HOME}/.local/bin:${SYSTEM_PATH}:${AGENT_PROGRAMS}/bin`,
    HOME,
    USER: 'agent',
    LANG: 'C.UTF-8',
    TERM: 'dumb',
  };
}

/** The request to the supervisor for a turn. */
export function launchRequest(
  options: Omit<LaunchOptions, 'sandboxId' | 'signal'>,
  limits: SandboxLimits,
): LaunchRequest {
  return {
    ...requestOf(options.launchId, options, limits),
    clear: { folders: [SHARED_MEMORY], as: USERS.agent },
  };
}

/** The request for a script. It runs as the agent, because nothing in the pod may be root. */
export function scriptRequest(
  launchId: string,
  script: string,
  env: Readonly<Record<string, string>>,
  limits: SandboxLimits,
): LaunchRequest {
  return requestOf(launchId, { ...scriptCommand(script), env }, limits);
}

function requestOf(
  launchId: string,
  options: Pick<LaunchOptions, 'command' | 'env' | 'stdin' | 'cwd' | 'deadline' | 'outputLimit'>,
  limits: SandboxLimits,
): LaunchRequest {
  const { command, env, stdin, cwd = WORKSPACE, deadline, outputLimit } = options;
  return {
    ...{ command, stdin, cwd, deadline, outputLimit, limits },
    environment: { ...agentEnvironment(), ...env },
    owner: null,
    scratchFolders: [SHARED_MEMORY],
    seccomp: seccompFilter('agent', process.arch).toString('base64'),
    cgroups: CONTAINER_GROUPS,
    disk: { kind: 'folders', folders: DISK },
    stage: {
      kind: 'shim',
      socket: launchSocket(SOCKETS),
      launchId,
      stage: {
        kind: 'plain',
        confine: CONFINE,
        keepCapabilities: false,
        uid: null,
        // The kernel counts processes by user, and all pods of a node have the same one.
        limitProcesses: false,
      },
    },
  };
}
