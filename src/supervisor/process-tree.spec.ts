import { execFileSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { descendants, killAll, killUser, processesOfUser, signalAll } from './processes.js';

afterEach(() => {
  jest.restoreAllMocks();
});

/** Does something in this process while it can open no file. */
function withoutDescriptors(work: () => void): void {
  const prlimit = (...options: string[]): string =>
    execFileSync('prlimit', [`--pid=${process.pid}`, ...options], { encoding: 'utf8' }).trim();
  const before = prlimit('--nofile', '--raw', '--noheadings', '--output=SOFT');
  const opened: number[] = [];
  prlimit('--nofile=1024:');
  try {
    for (;;) opened.push(openSync('/dev/null', 'r'));
  } catch {
    work();
  } finally {
    for (const fd of opened) closeSync(fd);
    prlimit(`--nofile=${before}:`);
  }
}

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
    const kill = jest.spyOn(process, 'kill').mockReturnValue(true);
    killAll(() => [-1, 0]);
    expect(kill).not.toHaveBeenCalled();
  });

  it('does not take processes that it cannot list for none', () => {
    withoutDescriptors(() => {
      expect(() => descendants(process.pid)).toThrow('EMFILE');
      expect(() => processesOfUser(1_990_000_077)).toThrow('EMFILE');
    });
  });

  it('never ends a system user or its own', () => {
    for (const uid of [0, -1, 33, Number.NaN, process.getuid?.() ?? 0]) {
      expect(() => killUser(uid)).toThrow('not the kernel user of a sandbox');
    }
  });
});
