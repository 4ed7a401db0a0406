import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { SandboxGroups } from './sandbox-groups.js';

const LIMITS = { processes: 10, memoryBytes: 1000, diskBytes: 0, tmpBytes: 0, openFiles: 0 };

/** The files of groups are as those of any folder to whoever writes them; only the kernel does something about it. */
describe('control groups of version 2', () => {
  let top: string;

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'groups-'));
  });
  afterEach(() => rm(top, { recursive: true }));

  it('limit the runtime in a group of its own, beside that of its supervisor', async () => {
    await writeFile(join(top, 'cgroup.controllers'), 'cpuset cpu io memory pids\n');
    const groups = new SandboxGroups('/data', { version: 2, top, own: top });
    const made = await groups.make('sandbox.launch', LIMITS, 1.5, null);
    const [supervisor = ''] = made?.supervisor ?? [];
    const [runtime = ''] = made?.launch.procs ?? [];
    expect(supervisor).toMatch(/sandbox\.launch\/supervisor\/cgroup\.procs$/);
    expect(runtime).toMatch(/sandbox\.launch\/runtime\/cgroup\.procs$/);
    const setting = (file: string) => readFile(join(runtime, '..', file), 'utf8');
    expect(await setting('memory.max')).toBe('1000');
    expect(await setting('memory.swap.max')).toBe('0');
    expect(Number(await setting('pids.max'))).toBeGreaterThanOrEqual(LIMITS.processes);
    expect(await setting('../cpu.max')).toBe('150000 100000');
    expect(await setting('../cgroup.subtree_control')).toBe('+memory +pids +cpu');
    expect([...(await groups.resources())].toSorted()).toEqual(['cpu', 'memory', 'processes']);
    expect(made?.launch.memoryEvents).toEqual([join(runtime, '../memory.events')]);
  });

  it('have a small share of the processors, all together', async () => {
    await writeFile(join(top, 'cgroup.controllers'), 'cpu memory pids\n');
    const groups = new SandboxGroups('/data', { version: 2, top, own: top });
    const made = await groups.make('sandbox.launch', LIMITS, undefined, null);
    const weight = join(made?.supervisor[0] ?? '', '../../../cpu.weight');
    expect(Number(await readFile(weight, 'utf8'))).toBeLessThan(100);
  });

  it('leave memory to be watched where its controller was not delegated', async () => {
    await writeFile(join(top, 'cgroup.controllers'), 'cpu pids\n');
    const groups = new SandboxGroups('/data', { version: 2, top, own: top });
    const made = await groups.make('sandbox.launch', LIMITS, undefined, null);
    expect(made?.launch).toMatchObject({ procs: [expect.any(String)], memoryEvents: [] });
    expect([...(await groups.resources())].toSorted()).toEqual(['cpu', 'processes']);
  });

  it('limit nothing where no controller was delegated', async () => {
    await writeFile(join(top, 'cgroup.controllers'), '\n');
    const groups = new SandboxGroups('/data', { version: 2, top, own: join(top, 'missing') });
    expect(await groups.make('sandbox.launch', LIMITS, undefined, null)).toBeNull();
    expect([...(await groups.resources())]).toEqual([]);
  });
});

describe('control groups of version 1', () => {
  let top: string;
  let folders: Record<'cpu' | 'memory' | 'processes', string>;

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'groups-'));
    folders = { cpu: join(top, 'cpu'), memory: join(top, 'memory'), processes: join(top, 'pids') };
  });
  afterEach(() => rm(top, { recursive: true }));

  /** The kernel makes these files; without them, nothing here is a group. */
  async function prepared(): Promise<SandboxGroups> {
    const groups = new SandboxGroups('/data', { version: 1, folders });
    const parents = Object.values(folders).map((folder) => join(folder, groups.name));
    for (const parent of parents) {
      await mkdir(parent, { recursive: true });
      await writeFile(join(parent, 'cgroup.procs'), '');
    }
    return groups;
  }

  it('have a small share of the processors, all together, and supervisors one of their own', async () => {
    const groups = await prepared();
    const made = await groups.make('sandbox.launch', LIMITS, 1.5, null);
    const parent = join(folders.cpu, groups.name);
    expect(Number(await readFile(join(parent, 'cpu.shares'), 'utf8'))).toBeLessThan(1024);
    const quota = join(parent, 'sandbox.launch/cpu.cfs_quota_us');
    expect(await readFile(quota, 'utf8')).toBe('150000');
    const [supervisor = '', ...others] = made?.supervisor ?? [];
    expect(others).toEqual([]);
    expect(relative(parent, supervisor)).toMatch(/^\.\./);
    expect(relative(folders.cpu, supervisor)).toMatch(
      /^[^./][^/]*\/sandbox\.launch\/cgroup\.procs$/,
    );
    await groups.destroy('sandbox.launch');
    await expect(stat(dirname(supervisor))).rejects.toThrow('ENOENT');
  });

  it('count memory and processes of the runtime alone', async () => {
    const groups = await prepared();
    const made = await groups.make('sandbox.launch', LIMITS, undefined, null);
    for (const resource of ['memory', 'processes'] as const) {
      const group = join(folders[resource], groups.name, 'sandbox.launch');
      expect(made?.launch.procs).toContain(join(group, 'cgroup.procs'));
    }
    expect(made?.supervisor).toHaveLength(1);
  });
});
