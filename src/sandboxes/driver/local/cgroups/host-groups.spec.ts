import { describe, expect, it } from '@jest/globals';
import { findHostGroups } from './host-groups.js';

const mount = (root: string, folder: string, type: string, options: string): string =>
  `31 23 0:28 ${root} ${folder} rw,relatime - ${type} ${type} ${options}`;

describe('where control groups are', () => {
  it('takes the controllers of version 1 where they are mounted, each with its own path', () => {
    const mounts = [
      mount('/', '/', 'ext4', 'rw'),
      mount('/', '/sys/fs/cgroup/memory', 'cgroup', 'rw,memory'),
      mount('/', '/sys/fs/cgroup/cpu,cpuacct', 'cgroup', 'rw,cpu,cpuacct'),
      mount('/', '/sys/fs/cgroup/unified', 'cgroup2', 'rw'),
    ].join('\n');
    const own = '8:pids:/a\n5:cpu,cpuacct:/b\n4:memory:/c/d\n0::/e\n';
    expect(findHostGroups(mounts, own)).toEqual({
      version: 1,
      folders: { memory: '/sys/fs/cgroup/memory/c/d', cpu: '/sys/fs/cgroup/cpu,cpuacct/b' },
    });
  });

  it('takes version 2 where there is nothing else', () => {
    const mounts = mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw,nsdelegate');
    expect(findHostGroups(mounts, '0::/system.slice/agents.service\n')).toEqual({
      version: 2,
      top: '/sys/fs/cgroup',
      own: '/sys/fs/cgroup/system.slice/agents.service',
    });
  });

  it('follows a mount that shows a part of the hierarchy, as in containers', () => {
    const mounts = mount('/docker/abc', '/sys/fs/cgroup/memory', 'cgroup', 'ro,memory');
    const folders = (own: string) => findHostGroups(mounts, `4:memory:${own}`);
    expect(folders('/docker/abc/x')).toMatchObject({
      folders: { memory: '/sys/fs/cgroup/memory/x' },
    });
    expect(folders('/docker/abc')).toMatchObject({ folders: { memory: '/sys/fs/cgroup/memory' } });
    expect(folders('/elsewhere')).toMatchObject({ folders: { memory: '/sys/fs/cgroup/memory' } });
  });

  it('finds none where there are none', () => {
    expect(findHostGroups(mount('/', '/', 'ext4', 'rw'), '')).toBeNull();
  });
});
