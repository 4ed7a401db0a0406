import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { barrierTo, findProgram, isWithin, systemFolders } from './host.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'host-'));
  await chmod(folder, 0o755);
  await mkdir(join(folder, 'open/closed/below'), { recursive: true });
  await chmod(join(folder, 'open/closed'), 0o700);
});
afterAll(() => rm(folder, { recursive: true }));

describe('the host', () => {
  it('names the folder that another user cannot pass', () => {
    expect(barrierTo(join(folder, 'open/closed'))).toBeNull();
    expect(barrierTo(join(folder, 'open/closed/below'))).toBe(join(folder, 'open/closed'));
  });

  it('knows what lies within a folder', () => {
    expect(isWithin('/usr/src/app', '/usr')).toBe(true);
    expect(isWithin('/usr', '/usr')).toBe(true);
    expect(isWithin('/usrlocal', '/usr')).toBe(false);
    expect(isWithin('/etc', '/')).toBe(true);
  });

  it('finds programs and the folders of a system', () => {
    expect(findProgram('sh')).toMatch(/\/bin\/sh$/);
    expect(findProgram('no-such-program')).toBeNull();
    expect(systemFolders('/').map(({ path }) => path)).toContain('/bin');
  });
});
