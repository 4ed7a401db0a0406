import { execFileSync } from 'node:child_process';
import { chmodSync, linkSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { diskUsage } from './disk-usage.js';

const MiB = 2 ** 20;
const ALL = Number.POSITIVE_INFINITY;

describe('disk usage', () => {
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'usage-'));
  });

  afterEach(() => {
    // Not Node's: it does not reach what lies too deep.
    execFileSync('sh', ['-c', 'chmod -R u+rwx "$0"; rm -rf "$0"', folder]);
  });

  /** In the folder, with shell commands, as an agent would. */
  function make(script: string): void {
    execFileSync('bash', ['-c', script], { cwd: folder });
  }

  it('counts blocks, every file at least one, and links once', async () => {
    writeFileSync(join(folder, 'a'), Buffer.alloc(3 * MiB));
    linkSync(join(folder, 'a'), join(folder, 'b'));
    symlinkSync('/', join(folder, 'root'));
    for (let i = 0; i < 100; i += 1) writeFileSync(join(folder, `empty-${i}`), '');
    const bytes = await diskUsage([folder], ALL);
    expect(bytes).toBeGreaterThanOrEqual(3 * MiB + 101 * 4096);
    expect(bytes).toBeLessThan(3.6 * MiB);
  });

  it('counts what lies deeper than the kernel takes a path', async () => {
    make(
      `for i in $(seq 25); do d=$(printf '%0200d' $i); mkdir $d; cd $d; done; head -c 5M /dev/zero > x`,
    );
    expect(await diskUsage([folder], ALL)).toBeGreaterThan(5 * MiB);
  });

  it('takes a tree that is too deep to be counted for too large', async () => {
    make("perl -e 'for (1..600) { mkdir q(d); chdir q(d) }'");
    expect(await diskUsage([folder], ALL)).toBe(Number.POSITIVE_INFINITY);
  });

  it('counts what has a name that is not text', async () => {
    make(`mkdir $'\\xff\\xfe'; head -c 5M /dev/zero > $'\\xff\\xfe/\\xff'`);
    expect(await diskUsage([folder], ALL)).toBeGreaterThan(5 * MiB);
  });

  it.each([0, 0o100, 0o400])('counts what is in a folder of mode %i', async (mode) => {
    mkdirSync(join(folder, 'closed'));
    writeFileSync(join(folder, 'closed/x'), Buffer.alloc(5 * MiB));
    chmodSync(join(folder, 'closed'), mode);
    expect(await diskUsage([folder], ALL)).toBeGreaterThan(5 * MiB);
  });

  it('counts of a system what was changed since', async () => {
    writeFileSync(join(folder, 'old'), Buffer.alloc(7 * MiB));
    await delay(20);
    const since = Date.now();
    await delay(20);
    mkdirSync(join(folder, 'new'));
    writeFileSync(join(folder, 'new/file'), Buffer.alloc(2 * MiB));
    // The time of a change cannot be set, whatever a file's own times are.
    execFileSync('touch', ['-d', '2001-01-01', join(folder, 'new/file')]);
    const bytes = await diskUsage([], ALL, { root: folder, since });
    expect(bytes).toBeGreaterThanOrEqual(2 * MiB);
    expect(bytes).toBeLessThan(3 * MiB);
  });

  it('stops when it has seen enough', async () => {
    for (let i = 0; i < 10; i += 1) writeFileSync(join(folder, `f${i}`), Buffer.alloc(MiB));
    expect(await diskUsage([folder], 2 * MiB)).toBeLessThan(5 * MiB);
  });

  it('says nothing about a folder that is not there', async () => {
    expect(await diskUsage([join(folder, 'none')], ALL)).toBe(0);
  });
});
