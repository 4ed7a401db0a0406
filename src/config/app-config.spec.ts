import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { readConfiguredFile } from '../common/configured-file.js';
import { loadConfig } from './app-config.js';

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'config-'));
});

afterAll(() => {
  rmSync(folder, { recursive: true });
});

describe('the configuration', () => {
  it.each([
    [{ HOST: 'a b' }, 'HOST: must be an IP address or a host name, not "a b"'],
    [{ HOST: 'http://0.0.0.0' }, 'HOST: must be an IP address or a host name'],
    [{ DATABASE_URL: 'postgres:db' }, 'DATABASE_URL: must be a URL that starts with postgres://'],
    [{ DATABASE_URL: 'localhost/db' }, 'DATABASE_URL: must be a URL'],
    [{ DATABASE_URL: 'postgres://h:99999/db' }, 'DATABASE_URL: must be a URL'],
    [{ DATABASE_URL: 'postgres://me:5%zz@h/db' }, 'DATABASE_URL: has a "%" in its password'],
    [{ DATABASE_URL: 'postgres://h/%zz' }, 'DATABASE_URL: has a "%" in its database'],
    [
      { DATABASE_URL: 'postgres://h/db?sslrootcert=/nowhere' },
      'DATABASE_URL: sslrootcert: cannot read /nowhere (ENOENT)',
    ],
    [{ SANDBOX_MEMORY: '1' }, 'SANDBOX_MEMORY: must be at least 64MiB, not "1"'],
    [{ SANDBOX_DISK: '1MiB' }, 'SANDBOX_DISK: must be at least 16MiB, not "1MiB"'],
    [{ OUTPUT_LIMIT: '1' }, 'OUTPUT_LIMIT: must be at least 1KiB, not "1"'],
    [{ BODY_LIMIT: '1' }, 'BODY_LIMIT: must be at least 1KiB, not "1"'],
  ])('names what is wrong: %j', (env, message) => {
    expect(() => loadConfig(env)).toThrow(message);
  });

  it.each(['0.0.0.0', '::', 'fe80::1%lo', 'localhost', 'my_host.svc.cluster.local'])(
    'listens on %s',
    (host) => {
      expect(loadConfig({ HOST: host }).host).toBe(host);
    },
  );

  it.each(['postgres://me:p%25@h:5433/db?sslmode=require', 'postgresql:///db?host=/run/pg'])(
    'accepts the database %s',
    (url) => {
      expect(loadConfig({ DATABASE_URL: url }).databaseUrl).toBe(url);
    },
  );

  it('accepts the smallest limits', () => {
    const { memoryBytes, diskBytes } = loadConfig({
      SANDBOX_MEMORY: '64MiB',
      SANDBOX_DISK: '16MiB',
    }).sandbox;
    expect([memoryBytes, diskBytes]).toEqual([64 * 2 ** 20, 16 * 2 ** 20]);
  });
});

describe('a configured file', () => {
  const everyFile: readonly [string, (path: string) => unknown][] = [
    ['SANDBOX_CA_FILE', (path) => loadConfig({ SANDBOX_CA_FILE: path })],
    ['GATEWAY_CERT_FILE', (path) => loadConfig({ GATEWAY_CERT_FILE: path })],
    ['DATABASE_URL', (path) => loadConfig({ DATABASE_URL: `postgres://h/db?sslrootcert=${path}` })],
  ];

  it.each(everyFile)('%s is never a device or a pipe, which may not end', (name, load) => {
    const pipe = join(folder, name);
    execFileSync('mkfifo', [pipe]);
    for (const path of ['/dev/zero', pipe]) {
      expect(() => load(path)).toThrow(new RegExp(`^${name}: .*${path} is not a regular file$`));
    }
  });

  it('is refused if it is too large, and read if it is not', () => {
    const path = join(folder, 'large');
    writeFileSync(path, 'x'.repeat(200_000));
    expect(readConfiguredFile(path, 200_000)).toHaveLength(200_000);
    expect(() => readConfiguredFile(path, 199_999)).toThrow(`${path} is larger than 199999 bytes`);
  });

  it('is bounded even if the system states no size', () => {
    expect(readConfiguredFile('/proc/self/status')).toContain('Pid:');
    expect(() => readConfiguredFile('/proc/self/status', 10)).toThrow('is larger than 10 bytes');
  });
});
