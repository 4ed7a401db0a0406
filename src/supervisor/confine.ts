import { readFileSync, existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SandboxLimits } from './sandbox-options.js';

/** The control groups of one launch, for its supervisor. */
export interface LaunchGroups {
  /** The `cgroup.procs` files of the groups that the runtime joins before it runs anything. */
  procs: readonly string[];
  /** Files with the number of out-of-memory kills; the first readable one is used. */
  memoryEvents: readonly string[];
}

/** A container's group as seen from inside. The engine has already added all processes to it. */
export const CONTAINER_GROUPS: LaunchGroups = {
  procs: [],
  memoryEvents: ['/sys/fs/cgroup/memory.events', '/sys/fs/cgroup/memory/memory.oom_control'],
};

/** Adds processes that have not run any code of a tenant yet to the groups. @throws the kernel's error */
export async function joinGroups(
  groups: LaunchGroups | null,
  pids: () => readonly number[],
): Promise<void> {
  await Promise.all(
    (groups?.procs ?? []).map(async (file) => {
      for (const pid of pids()) await writeFile(file, String(pid));
    }),
  );
}

/** The number of processes that the kernel killed because the group ran out of memory. */
export function countOomKills(groups: LaunchGroups | null): number {
  for (const file of groups?.memoryEvents ?? []) {
    try {
      return Number(/^oom_kill (\d+)/m.exec(readFileSync(file, 'latin1'))?.[1] ?? 0);
    } catch {
      // The file belongs to the other cgroup version, or there are no groups.
    }
  }
  return 0;
}

/** The folder of the compiled programs of `native` below the package. */
const NATIVE = join('dist', 'native', process.arch);

/** The kernel also counts memory that is only reserved, and JavaScript engines reserve a lot. */
const ADDRESS_SPACE_FACTOR = 2;
/** Makes the kernel kill an agent's processes first when the host runs out of memory. */
const OOM_SCORE_ADJ = 500;

/** The program that confines agents, by its path in a view's `app`. */
export function confineProgram(app: string): string {
  return join(app, NATIVE, 'confine');
}

/** The program that makes the listeners of a relay, by its path in a view's `app`. */
export function listenProgram(app: string): string {
  return join(app, NATIVE, 'listen');
}

/** Whether the build created it, which needs a C compiler. */
export function hasConfineProgram(app: string): boolean {
  return existsSync(confineProgram(app));
}

/** What `confine` does before it executes a command. The options have the names of those in `native/confine.c`. */
export interface Confinement {
  /** `cgroup.procs` files of the groups to join. */
  cgroups?: readonly string[];
  /** Named pipes to create. */
  fifos?: readonly string[];
  close?: boolean;
  /** Continues as a child of init. The process that was started ends at once. */
  detach?: boolean;
  subreaper?: boolean;
  reap?: boolean;
  limits?: SandboxLimits;
  /** The limit of processes. It counts by user, so it only works if the kernel user belongs to this sandbox alone. */
  limitProcesses?: boolean;
  /** Folders that the command sees in the place of others: `[source, target]`. */
  binds?: readonly (readonly [string, string])[];
  /** Files, and folders with their contents, that the command cannot see. */
  hidden?: readonly string[];
  /** Keeps only the capabilities that root of a container has. */
  containerRoot?: boolean;
  /** The kernel user to change to; `null`: no change. */
  user?: number | null;
  dropCapabilities?: boolean;
  noNewPrivileges?: boolean;
  dieWithParent?: boolean;
  /** Reads standard input to its end first. The command gets a sealed copy in memory. */
  sealInput?: boolean;
  chdir?: string;
  /** The descriptors with the environment and the filter. */
  environment?: number;
  clearEnvironment?: boolean;
  seccomp?: number;
  /** The descriptor on which it announces that it executes the command next. */
  announce?: number;
  /**
   * Instead of running a command, writes packed files from standard input, see `packed-files.ts`. The value is the home
   * folder.
   */
  writeFiles?: string;
  /** Instead of running a command, exits with 0 if all operands are programs on the PATH, otherwise with 1. */
  lookUp?: boolean;
  /** Instead of running a command, serves one access to files on standard input and output. */
  files?: boolean;
}

/** The arguments for starting a confined command, which follows them. */
export function confine(program: string, how: Confinement): string[] {
  const flag = (name: string, on: boolean | undefined): string[] => (on ? [name] : []);
  const value = (name: string, given: string | number | null | undefined): string[] =>
    given === undefined || given === null ? [] : [name, String(given)];
  return [
    [program],
    (how.cgroups ?? []).flatMap((file) => ['--cgroup', file]),
    (how.fifos ?? []).flatMap((file) => ['--fifo', file]),
    flag('--close', how.close),
    flag('--detach', how.detach),
    flag('--subreaper', how.subreaper),
    flag('--reap', how.reap),
    how.limits === undefined ? [] : limitArguments(how.limits, how.limitProcesses ?? false),
    (how.binds ?? []).flatMap(([source, target]) => ['--bind', `${source}=${target}`]),
    (how.hidden ?? []).flatMap((path) => ['--hide', path]),
    flag('--container-root', how.containerRoot),
    value('--user', how.user),
    flag('--drop-capabilities', how.dropCapabilities),
    flag('--no-new-privileges', how.noNewPrivileges),
    flag('--die-with-parent', how.dieWithParent),
    flag('--seal-input', how.sealInput),
    value('--chdir', how.chdir),
    value('--environment', how.environment),
    flag('--clear-environment', how.clearEnvironment),
    value('--seccomp', how.seccomp),
    value('--announce', how.announce),
    value('--write-files', how.writeFiles),
    flag('--look-up', how.lookUp),
    flag('--files', how.files),
    ['--'],
  ].flat();
}

function limitArguments(limits: SandboxLimits, limitProcesses: boolean): string[] {
  const resources: Record<string, number> = {
    core: 0,
    nofile: limits.openFiles,
    data: Math.floor(limits.memoryBytes * ADDRESS_SPACE_FACTOR),
    ...(limitProcesses && { nproc: limits.processes }),
  };
  return [
    ['--oom-score-adj', String(OOM_SCORE_ADJ)],
    ...Object.entries(resources).map(([name, limit]) => ['--rlimit', `${name}=${limit}`]),
  ].flat();
}

/** The arguments for starting a command as a user without groups and capabilities; the command follows them. */
export function becomeUser(program: string, user: number): string[] {
  return confine(program, { user, dropCapabilities: true });
}
