import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { descendants, killAll, killUser, processesOfLaunch, signalAll } from './process-tree.js';

afterEach(() => {
  jest.restoreAllMocks();
});

describe('ending processes', () => {
  it('never signals a group, everything, init or itself', () => {
    const kill = jest.spyOn(process, 'kill').mockReturnValue(true);
    signalAll([-1, 0, 1, -4711, Number.NaN, process.pid], 'SIGTERM');
    expect(kill).not.toHaveBeenCalled();
    signalAll([999_999_999], 'SIGTERM');
    expect(kill.mock.calls).toEqual([[999_999_999, 'SIGTERM']]);
  });

  it('finds nothing below what is not a process', () => {
    for (const root of [-1, 0, 1]) expect(descendants(root)).toEqual([]);
    const none = { mark: '/no/such/launch', uid: null, root: null };
    expect(processesOfLaunch(none)).toEqual([]);
    const kill = jest.spyOn(process, 'kill').mockReturnValue(true);
    killAll(() => processesOfLaunch(none));
    killAll(() => [-1, 0]);
    expect(kill).not.toHaveBeenCalled();
  });

  it('never ends a system user or its own', () => {
    for (const uid of [0, -1, 33, Number.NaN, process.getuid?.() ?? 0]) {
      expect(() => killUser(uid)).toThrow('not the kernel user of a sandbox');
    }
  });
});
