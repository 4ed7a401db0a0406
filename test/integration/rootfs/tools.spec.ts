import { execFile } from 'node:child_process';
import { lstat, mkdtemp, readdir, readlink, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ensureTools } from '../../../src/sandboxes/driver/local/tools/ensure-tools.js';

/** A root with the host's libraries and none of its PATH. */
const SANDBOX =
  '--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /home --unshare-all --uid 1000';

describe('ensureTools', () => {
  let dir: string;
  let path: string;

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'tools-'));
    ({ path } = await ensureTools({ dir }));
  });
  afterAll(() => rm(dir, { recursive: true }));

  it('has Node, npm and npx that run by themselves', async () => {
    const run = async (...command: string[]): Promise<string> => {
      const { stdout } = await promisify(execFile)(
        'bwrap',
        [...SANDBOX.split(' '), '--ro-bind', path, '/tools', '--', ...command],
        { env: { PATH: '/tools/bin:/usr/bin', HOME: '/home' } },
      );
      return stdout.trim();
    };
    expect(await run('node', '-p', 'process.version + process.execPath')).toBe(
      `${process.version}/tools/bin/node`,
    );
    const version = /-npm-([\d.]+)-/.exec(basename(path))?.[1];
    expect(await run('npm', '--version')).toBe(version);
    expect(await run('npx', '--version')).toBe(version);
    expect(await run('npm', 'prefix', '-g')).toBe('/home/.local');
  });

  it('lets everyone read and no one write, and links nowhere outside', async () => {
    const entries = await readdir(path, { recursive: true, withFileTypes: true });
    expect(entries.length).toBeGreaterThan(1000);
    for (const entry of entries) {
      const file = join(entry.parentPath, entry.name);
      if (entry.isSymbolicLink()) {
        expect(resolve(entry.parentPath, await readlink(file)).startsWith(path)).toBe(true);
      } else {
        const { mode } = await lstat(file);
        expect([file, mode & 0o022, mode & 0o004]).toEqual([file, 0, 0o004]);
      }
    }
  });

  it('is made once for the same Node and npm', async () => {
    const before = (await lstat(path)).ino;
    expect((await ensureTools({ dir })).path).toBe(path);
    expect((await lstat(path)).ino).toBe(before);
    expect(new Set(await readdir(dir))).toEqual(new Set(['.lock', basename(path)]));
  });

  it('says what is missing', async () => {
    await expect(ensureTools({ dir, nodePath: '/none/node' })).rejects.toThrow('/none/node');
    await expect(ensureTools({ dir, npmDir: '/none/npm' })).rejects.toThrow('/none/npm');
  });
});
