import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { access, chown, constants, mkdir, rmdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { LaunchGroups } from '../../../../supervisor/confine.js';
import { ifMissing } from '../../../../common/missing-file.js';
import type { SandboxLimits } from '../../../../supervisor/sandbox-options.js';
import { signalAll } from '../../../../supervisor/processes.js';
import {
  apply,
  childrenOf,
  controllersOf,
  enable,
  pidsIn,
  removeGroup,
  type Setting,
  vacate,
} from './group-files.js';
import { findHostGroups, type HostGroups, type Resource } from './host-groups.js';

/** An empty group may be new and still waiting for its first process. */
const YOUNG_MS = 120_000;
const CPU_PERIOD = 100_000;
/**
 * The weight of all launches together where processors are short, beside 100 of the service, its database and everybody
 * else. Within it, launches have equal shares.
 */
const CPU_WEIGHT = 10;
/** The same in version 1, where the usual share is 1024. */
const CPU_SHARES = Math.round((CPU_WEIGHT * 1024) / 100);
/** Processes between the supervisor and the runtime, beside the sandbox's own. */
const OWN_PROCESSES = 8;

/** A launch's groups, and the groups that its first process joins before it changes its user. */
export interface MadeGroups {
  launch: LaunchGroups;
  /** `cgroup.procs` of the supervisor's own group. Empty: it stays where the service is. */
  supervisor: readonly string[];
}

/**
 * The control groups of this installation's launches: one for each, below one that they share, so that no sandbox takes
 * more of memory, processes and processors than its limits, and all of them together leave the service its share.
 */
export class SandboxGroups {
  /** Of the group that all launches share. */
  readonly name: string;
  private parents: Promise<Partial<Record<Resource, string>>> | undefined;

  constructor(
    stateDir: string,
    private readonly host: HostGroups | null = groupsOfThisHost(),
  ) {
    const digest = createHash('sha256').update(stateDir).digest('hex').slice(0, 12);
    this.name = `agent-sessions-${digest}`;
  }

  /** The resources that groups limit on this host; others can only be monitored. */
  async resources(): Promise<ReadonlySet<Resource>> {
    return new Set(Object.keys(await this.folders()) as Resource[]);
  }

  /**
   * Makes the groups of a launch.
   * @param owner the kernel user of its supervisor, which moves the runtime into them; `null`: the service's own
   * @returns `null` if groups are not available
   */
  async make(
    name: string,
    limits: SandboxLimits,
    cpus: number | undefined,
    owner: number | null,
  ): Promise<MadeGroups | null> {
    const folders = await this.folders();
    const resources = Object.keys(folders) as Resource[];
    if (resources.length === 0) return null;
    return this.host?.version === 2
      ? this.makeUnified(
          join(Object.values(folders)[0] ?? '', name),
          resources,
          limits,
          cpus,
          owner,
        )
      : this.makeSplit(folders, name, limits, cpus, owner);
  }

  /** Kills all processes of a launch, including those that its supervisor does not see, and removes its groups. */
  async destroy(name: string): Promise<void> {
    for (const parent of await this.distinctFolders()) {
      const group = join(parent, name);
      for (let attempt = 0; attempt < 100; attempt += 1) {
        const pids = await pidsIn(group);
        if (pids.length === 0) break;
        signalAll(pids, 'SIGKILL');
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      await removeGroup(group);
    }
  }

  /** Removes groups without processes, including those that a dead service left behind. */
  async removeEmpty(): Promise<void> {
    for (const parent of await this.distinctFolders()) {
      for (const name of await childrenOf(parent)) {
        const group = join(parent, name);
        const { mtimeMs } = await stat(group).catch(ifMissing({ mtimeMs: Date.now() }));
        if (Date.now() - mtimeMs > YOUNG_MS) await removeGroup(group);
      }
    }
  }

  /** Removes the group that launches share, unless it has processes. */
  async close(): Promise<void> {
    if (this.parents === undefined) return;
    for (const parent of await this.distinctFolders()) await rmdir(parent).catch(() => undefined);
    this.parents = undefined;
  }

  /** Removes the groups of a destroyed sandbox. */
  async removeOf(sandboxId: string): Promise<void> {
    for (const parent of await this.distinctFolders()) {
      for (const name of await childrenOf(parent)) {
        if (name.startsWith(`${sandboxId}.`)) await this.destroy(name);
      }
    }
  }

  private async makeSplit(
    folders: Partial<Record<Resource, string>>,
    name: string,
    limits: SandboxLimits,
    cpus: number | undefined,
    owner: number | null,
  ): Promise<MadeGroups> {
    const settings: Record<Resource, readonly Setting[]> = {
      memory: [
        ['memory.limit_in_bytes', limits.memoryBytes],
        // Absent where the kernel does not count swap.
        ['memory.memsw.limit_in_bytes', limits.memoryBytes, 'optional'],
      ],
      // The group also contains bubblewrap, or the process that reaps orphans.
      processes: [['pids.max', limits.processes + OWN_PROCESSES]],
      cpu:
        cpus === undefined
          ? []
          : [
              ['cpu.cfs_period_us', CPU_PERIOD],
              ['cpu.cfs_quota_us', Math.round(cpus * CPU_PERIOD)],
            ],
    };
    const made = await Promise.all(
      (Object.entries(folders) as [Resource, string][]).map(async ([resource, parent]) => {
        const group = join(parent, name);
        await mkdir(group, { recursive: true });
        for (const setting of settings[resource]) await apply(group, setting);
        const procs = join(group, 'cgroup.procs');
        if (owner !== null) await chown(procs, owner, owner);
        return { resource, group, procs };
      }),
    );
    const supervisors = this.supervisorsOf(folders).map((parent) => join(parent, name));
    for (const group of supervisors) await mkdir(group, { recursive: true });
    const memory = made.find(({ resource }) => resource === 'memory');
    return {
      launch: {
        procs: made.map(({ procs }) => procs),
        memoryEvents: memory === undefined ? [] : [join(memory.group, 'memory.oom_control')],
      },
      supervisor: supervisors.map((group) => join(group, 'cgroup.procs')),
    };
  }

  /**
   * In version 2 a process may be moved only below a group whose `cgroup.procs` the mover may write, and groups with
   * controlled children hold no processes: hence one for the supervisor and one for the runtime.
   */
  private async makeUnified(
    group: string,
    resources: readonly Resource[],
    limits: SandboxLimits,
    cpus: number | undefined,
    owner: number | null,
  ): Promise<MadeGroups> {
    await mkdir(group, { recursive: true });
    // Another process that ended may have removed the parent, so it may be new.
    await enable(dirname(group), resources);
    await enable(group, resources);
    const [supervisor, runtime] = [join(group, 'supervisor'), join(group, 'runtime')];
    for (const folder of [supervisor, runtime]) await mkdir(folder, { recursive: true });
    if (resources.includes('memory')) {
      await apply(runtime, ['memory.max', limits.memoryBytes]);
      await apply(runtime, ['memory.swap.max', 0, 'optional']);
    }
    if (resources.includes('processes')) {
      await apply(runtime, ['pids.max', limits.processes + OWN_PROCESSES]);
    }
    if (resources.includes('cpu') && cpus !== undefined) {
      await apply(group, ['cpu.max', `${Math.round(cpus * CPU_PERIOD)} ${CPU_PERIOD}`]);
    }
    const procs = (folder: string): string => join(folder, 'cgroup.procs');
    if (owner !== null) {
      for (const folder of [group, supervisor, runtime]) await chown(procs(folder), owner, owner);
    }
    return {
      launch: {
        procs: [procs(runtime)],
        // With this file, the supervisor does not watch memory itself, because the kernel limits it.
        memoryEvents: resources.includes('memory') ? [join(runtime, 'memory.events')] : [],
      },
      supervisor: [procs(supervisor)],
    };
  }

  private folders(): Promise<Partial<Record<Resource, string>>> {
    this.parents ??= this.prepare().catch(() => ({}));
    return this.parents;
  }

  private async distinctFolders(): Promise<string[]> {
    const folders = await this.folders();
    return [...new Set([...Object.values(folders), ...this.supervisorsOf(folders)])];
  }

  /**
   * In version 1, supervisors have a share of the processors beside that of all launches: output is not to wait for agents
   * that compute. Version 2 does not let a supervisor move its runtime out of the group that both are in.
   */
  private supervisorsOf({ cpu }: Partial<Record<Resource, string>>): string[] {
    if (cpu === undefined || this.host?.version !== 1) return [];
    return [join(dirname(cpu), `supervisors-${this.name}`)];
  }

  /** Makes the groups that launches share, if this process may. */
  private async prepare(): Promise<Partial<Record<Resource, string>>> {
    if (this.host === null) return {};
    if (this.host.version === 2) return this.prepareUnified(this.host);
    const usable: Partial<Record<Resource, string>> = {};
    for (const [resource, folder] of Object.entries(this.host.folders) as [Resource, string][]) {
      const parent = join(folder, this.name);
      try {
        await mkdir(parent, { recursive: true });
        await access(join(parent, 'cgroup.procs'), constants.W_OK);
        if (resource === 'cpu') await apply(parent, ['cpu.shares', CPU_SHARES, 'optional']);
        usable[resource] = parent;
      } catch {
        // Not writable: a read-only mount, or an ordinary user.
      }
    }
    return usable;
  }

  private async prepareUnified(host: HostGroups & { version: 2 }) {
    for (const place of [host.top, host.own]) {
      const resources = await controllersOf(place).catch((): Resource[] => []);
      const parent = join(place, this.name);
      try {
        await enable(place, resources).catch(async (error: NodeJS.ErrnoException) => {
          // The group still has processes, this one among them.
          if (error.code !== 'EBUSY') throw error;
          await vacate(place);
          await enable(place, resources);
        });
        await mkdir(parent, { recursive: true });
        await enable(parent, resources);
        if (resources.includes('cpu')) await apply(parent, ['cpu.weight', CPU_WEIGHT, 'optional']);
        if (resources.length > 0)
          return Object.fromEntries(resources.map((resource) => [resource, parent]));
      } catch {
        // Not delegated to this process; tries its own group next.
      }
    }
    return {};
  }
}

function groupsOfThisHost(): HostGroups | null {
  try {
    const read = (name: string): string => readFileSync(`/proc/self/${name}`, 'utf8');
    return findHostGroups(read('mountinfo'), read('cgroup'));
  } catch {
    return null;
  }
}
