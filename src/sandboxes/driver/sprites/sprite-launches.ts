import type { LaunchRequest } from '../../../supervisor/launch-request.js';
import {
  HOME,
  type SandboxLimits,
  SYSTEM_PATH,
  WORKSPACE,
} from '../../../supervisor/sandbox-options.js';
import { scriptCommand } from '../../../supervisor/scripts.js';
import { seccompFilter } from '../../../supervisor/seccomp/profiles.js';
import { confineProgram } from '../../../supervisor/confine.js';
import type { LaunchOptions } from '../sandbox-driver.js';
import { AGENT, API_SOCKET, CHECKPOINTS, FOLDER, TMP } from './options.js';

/** The user that a launch runs as. */
export type Profile = 'agent' | 'setup';

/** In memory, and writable by the agent. */
const SCRATCH = ['/dev/shm'];

/** The environment of an agent's processes, before the launch's own variables. */
export function agentEnvironment(profile: Profile = 'agent'): Record<string, string> {
  return {
    PATH: `${HOME}/.local/bin:${SYSTEM_PATH}`,
    HOME,
    USER: profile === 'setup' ? 'root' : 'agent',
    LANG: 'C.UTF-8',
    TERM: 'dumb',
  };
}

/** The request to the supervisor for a turn. @param runtime the folder of our programs in the sprite */
export function launchRequest(
  options: Omit<LaunchOptions, 'sandboxId' | 'signal'>,
  limits: SandboxLimits,
  runtime: string,
): LaunchRequest {
  return {
    ...requestOf(options, limits, runtime, 'agent'),
    clear: { folders: SCRATCH, as: AGENT },
    wake: { socket: API_SOCKET, name: `turn-${options.launchId}` },
  };
}

/** The request for a script. The connection of who waits for it keeps the sprite awake. */
export function scriptRequest(
  script: string,
  env: Readonly<Record<string, string>>,
  profile: Profile,
  limits: SandboxLimits,
  runtime: string,
): LaunchRequest {
  return requestOf({ ...scriptCommand(script), env }, limits, runtime, profile);
}

function requestOf(
  options: Pick<LaunchOptions, 'command' | 'env' | 'stdin' | 'cwd' | 'deadline' | 'outputLimit'>,
  limits: SandboxLimits,
  runtime: string,
  profile: Profile,
): LaunchRequest {
  const { command, env, stdin, cwd = WORKSPACE, deadline, outputLimit } = options;
  const isRoot = profile === 'setup';
  return {
    ...{ command, stdin, cwd, deadline, outputLimit, limits },
    environment: { ...agentEnvironment(profile), ...env },
    owner: null,
    scratchFolders: SCRATCH,
    seccomp: seccompFilter('agent', process.arch).toString('base64'),
    cgroups: null,
    disk: { kind: 'folders', folders: [HOME, WORKSPACE, TMP] },
    stage: {
      kind: 'plain',
      confine: confineProgram(runtime),
      keepCapabilities: isRoot,
      containerRoot: isRoot,
      uid: isRoot ? null : AGENT,
      limitProcesses: !isRoot,
      binds: [
        [TMP, '/tmp'],
        [TMP, '/var/tmp'],
      ],
      hidden: [FOLDER, API_SOCKET, CHECKPOINTS],
    },
  };
}
