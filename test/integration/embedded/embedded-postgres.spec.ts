import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync } from 'node:fs';
import { mkdir, readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { Client } from 'pg';
import {
  findEmbeddedPostgres,
  startEmbeddedPostgres,
  type EmbeddedPostgres,
} from '../../../src/database/embedded/embedded-postgres.js';
import { findServer } from '../../../src/database/embedded/server-processes.js';
import { kill9, ServiceProcess, serversOn, until, withDataDir } from './service-process.js';

const lines: string[] = [];
const log = (line: string): void => void lines.push(line);

async function query<Row extends object>(url: string, statement: string): Promise<Row[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(statement)).rows;
  } finally {
    await client.end();
  }
}

async function withServer(
  dataDir: string,
  body: (server: EmbeddedPostgres) => Promise<void>,
): Promise<void> {
  const server = await startEmbeddedPostgres({ dataDir, log });
  try {
    await body(server);
  } finally {
    await server.stop();
  }
}

const remember = (url: string): Promise<object[]> =>
  query(url, 'CREATE TABLE kept AS SELECT 42 AS answer');
const recall = (url: string): Promise<object[]> => query(url, 'SELECT answer FROM kept');

/** A cluster with a row in it, nobody serving it. */
async function prepareCluster(dataDir: string): Promise<void> {
  await withServer(dataDir, async ({ url }) => {
    await remember(url);
  });
}

describe('the embedded PostgreSQL', () => {
  test('keeps data over a stop and a start, and leaves no process behind', () =>
    withDataDir(async (dataDir) => {
      await prepareCluster(dataDir);
      expect(findServer(join(dataDir, 'postgres')).all).toEqual([]);
      await withServer(dataDir, async ({ url }) => {
        expect(await recall(url)).toEqual([{ answer: 42 }]);
        const [{ version } = { version: '' }] = await query<{ version: string }>(
          url,
          'SELECT version()',
        );
        expect(version).toMatch(/^PostgreSQL 18\./);
      });
      expect(findServer(join(dataDir, 'postgres')).all).toEqual([]);
    }));

  test('runs with safe settings that the data folder cannot change', () =>
    withDataDir(async (dataDir) => {
      await prepareCluster(dataDir);
      await writeFile(join(dataDir, 'postgres', 'postgresql.auto.conf'), 'fsync = off\n');
      await withServer(dataDir, async ({ url }) => {
        const names = ['fsync', 'synchronous_commit', 'full_page_writes', 'max_connections'];
        const rows = await query<{ name: string; setting: string }>(
          url,
          `SELECT name, setting FROM pg_settings WHERE name = ANY('{${[
            ...names,
            'listen_addresses',
            'TimeZone',
            'dynamic_shared_memory_type',
          ].join(',')}}')`,
        );
        expect(Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))).toEqual({
          fsync: 'on',
          synchronous_commit: 'on',
          full_page_writes: 'on',
          max_connections: '200',
          listen_addresses: '',
          TimeZone: 'UTC',
          dynamic_shared_memory_type: 'mmap',
        });
      });
    }));

  test('lets in nobody without the password, and no other user at all', () =>
    withDataDir(async (dataDir) => {
      await withServer(dataDir, async ({ url }) => {
        const wrong = new URL(url);
        wrong.password = 'wrong';
        await expect(query(wrong.href, 'SELECT 1')).rejects.toThrow('password authentication');
        const cluster = await stat(join(dataDir, 'postgres'));
        expect(cluster.mode & 0o777).toBe(0o700);
        expect(cluster.uid).not.toBe(0);
        const password = await stat(join(dataDir, 'postgres', 'service-password'));
        expect(password.mode & 0o777).toBe(0o600);
      });
    }));

  test('writes nothing of a failed statement into its log', () =>
    withDataDir(async (dataDir) => {
      await withServer(dataDir, async ({ url }) => {
        await expect(query(url, `SELECT 'planted-secret'::integer`)).rejects.toThrow('integer');
      });
      const text = await readFile(join(dataDir, 'postgres.log'), 'utf8');
      expect(text).toContain('ready to accept connections');
      expect(text).not.toContain('planted-secret');
    }));

  test('stops once, however often it is asked', () =>
    withDataDir(async (dataDir) => {
      const server = await startEmbeddedPostgres({ dataDir, log });
      await Promise.all([server.stop(), server.stop()]);
      await server.stop();
      expect(serversOn(dataDir)).toEqual([]);
    }));

  test('stops although a transaction is open', () =>
    withDataDir(async (dataDir) => {
      const server = await startEmbeddedPostgres({ dataDir, log });
      const client = new Client({ connectionString: server.url });
      client.on('error', () => undefined);
      await client.connect();
      await client.query('BEGIN');
      await server.stop();
      expect(serversOn(dataDir)).toEqual([]);
      await client.end().catch(() => undefined);
    }));

  test('is found while it runs, by other processes too', () =>
    withDataDir(async (dataDir) => {
      expect(await findEmbeddedPostgres(dataDir)).toBeUndefined();
      await withServer(dataDir, async ({ url }) => {
        expect(await findEmbeddedPostgres(dataDir)).toEqual({ url });
        const other = ServiceProcess.run('find', dataDir);
        expect(await other.next()).toEqual({ ready: true, url });
      });
      expect(await findEmbeddedPostgres(dataDir)).toBeUndefined();
    }));

  test('gives a start up when it is told to', () =>
    withDataDir(async (dataDir) => {
      await expect(
        startEmbeddedPostgres({ dataDir, log, signal: AbortSignal.abort() }),
      ).rejects.toThrow('abort');
      await prepareCluster(dataDir);
      const start = new AbortController();
      const starting = startEmbeddedPostgres({ dataDir, log, signal: start.signal });
      await until(() => serversOn(dataDir).length > 0);
      start.abort();
      await expect(starting).rejects.toThrow('abort');
      expect(serversOn(dataDir)).toEqual([]);
    }));

  test('works below a path that is too long for a socket and has spaces', () =>
    withDataDir(async (dataDir) => {
      const deep = join(dataDir, 'a folder with a rather long name '.repeat(4).trim());
      let link = '';
      await withServer(deep, async ({ url }) => {
        await remember(url);
        expect(await findEmbeddedPostgres(deep)).toEqual({ url });
        expect(await recall(url)).toEqual([{ answer: 42 }]);
        link = String(new URL(url).searchParams.get('host'));
      });
      expect(() => lstatSync(link)).toThrow('ENOENT');
    }));
});

describe('after a crash', () => {
  test('kill -9 of the service ends its server, and the next start has the data', () =>
    withDataDir(async (dataDir) => {
      const service = ServiceProcess.run('serve', dataDir);
      const { url } = await service.next();
      await remember(String(url));
      await service.end('SIGKILL');
      await until(() => serversOn(dataDir).length === 0);

      await withServer(dataDir, async (server) => {
        expect(await recall(server.url)).toEqual([{ answer: 42 }]);
      });
    }));

  test('a start in the same moment as the kill -9 works too', () =>
    withDataDir(async (dataDir) => {
      const service = ServiceProcess.run('serve', dataDir);
      const { url } = await service.next();
      await remember(String(url));
      await service.end('SIGKILL');

      await withServer(dataDir, async (server) => {
        expect(serversOn(dataDir)).toHaveLength(1);
        expect(await recall(server.url)).toEqual([{ answer: 42 }]);
      });
    }));

  test('a left-over server is shut down in order before a new one starts', () =>
    withDataDir(async (dataDir) => {
      await prepareCluster(dataDir);
      const service = ServiceProcess.run('leaveBehind', dataDir);
      await service.next();
      await service.end('SIGKILL');
      const [left] = serversOn(dataDir);
      expect(left).toBeDefined();

      await withServer(dataDir, async ({ url }) => {
        const servers = serversOn(dataDir);
        expect(servers).toHaveLength(1);
        expect(servers).not.toContain(left);
        expect(await recall(url)).toEqual([{ answer: 42 }]);
      });
      const text = await readFile(join(dataDir, 'postgres.log'), 'utf8');
      expect(text).toContain(`[${left}] LOG:  database system is shut down`);
      expect(text).not.toContain('was interrupted');
    }));

  test('a server that was killed is recovered under the same URL', () =>
    withDataDir(async (dataDir) => {
      await withServer(dataDir, async ({ url }) => {
        await remember(url);
        const [postmaster] = serversOn(dataDir);
        process.kill(Number(postmaster), 'SIGKILL');
        await until(() => serversOn(dataDir).some((pid) => pid !== postmaster));
        await until(() => existsSync(join(dataDir, 'postgres', '.s.PGSQL.5432')));
        let rows: object[] | undefined;
        for (let attempt = 0; attempt < 100 && rows === undefined; attempt += 1)
          rows = await recall(url).catch(async () => {
            await new Promise((resolve) => {
              setTimeout(resolve, 50);
            });
            return undefined;
          });
        expect(rows).toEqual([{ answer: 42 }]);
        expect(lines.at(-1)).toBe('PostgreSQL ended unexpectedly (SIGKILL); restarting it');
      });
    }));

  test('service and server killed at once: what was committed is there', () =>
    withDataDir(async (dataDir) => {
      const service = ServiceProcess.run('serve', dataDir);
      const { url } = await service.next();
      await remember(String(url));
      const { all } = findServer(join(dataDir, 'postgres'));
      for (const pid of [service.pid, ...all]) kill9(pid);
      await service.end('SIGKILL');

      await withServer(dataDir, async (server) => {
        expect(await recall(server.url)).toEqual([{ answer: 42 }]);
      });
    }));

  test('files that name a pid of another program do not stop a start, nor is that one touched', () =>
    withDataDir(async (dataDir) => {
      await prepareCluster(dataDir);
      const innocent = process.ppid;
      const cluster = join(dataDir, 'postgres');
      await writeFile(
        join(cluster, 'postmaster.pid'),
        `${innocent}\n${cluster}\n1700000000\n5432\n.\n\n  1 2\nready   \n`,
      );
      await writeFile(join(cluster, '.s.PGSQL.5432.lock'), `${innocent}\n${cluster}\n`);
      await withServer(dataDir, async ({ url }) => {
        expect(await recall(url)).toEqual([{ answer: 42 }]);
      });
      expect(() => process.kill(innocent, 0)).not.toThrow();

      await writeFile(join(cluster, 'postmaster.pid'), '');
      await withServer(dataDir, async ({ url }) => {
        expect(await recall(url)).toEqual([{ answer: 42 }]);
      });
    }));

  test('a first start that is killed half way leaves nothing that the next one trips over', () =>
    withDataDir(async (dataDir) => {
      const service = ServiceProcess.run('serve', dataDir);
      const started = (): boolean =>
        spawnSync('ls', [dataDir], { encoding: 'utf8' }).stdout.includes('postgres.new-');
      await until(started);
      await service.end('SIGKILL');
      expect(existsSync(join(dataDir, 'postgres'))).toBe(false);

      await withServer(dataDir, async ({ url }) => {
        await remember(url);
      });
      const names = await readdir(dataDir);
      expect(names.filter((name) => name.startsWith('postgres.new-'))).toEqual([]);
    }));
});

describe('a data folder that does not do', () => {
  test('of another version is refused and left as it is', () =>
    withDataDir(async (dataDir) => {
      await prepareCluster(dataDir);
      const version = join(dataDir, 'postgres', 'PG_VERSION');
      await writeFile(version, '17\n');
      await expect(startEmbeddedPostgres({ dataDir, log })).rejects.toThrow(
        /postgres was made by PostgreSQL 17, this release runs 18: /,
      );
      await writeFile(version, '18\n');
      await withServer(dataDir, async ({ url }) => {
        expect(await recall(url)).toEqual([{ answer: 42 }]);
      });
    }));

  test('that holds something else is refused and left as it is', () =>
    withDataDir(async (dataDir) => {
      const mine = join(dataDir, 'postgres', 'diary.txt');
      await mkdir(join(dataDir, 'postgres'));
      await writeFile(mine, 'dear diary');
      await expect(startEmbeddedPostgres({ dataDir, log })).rejects.toThrow(
        'holds something else than a PostgreSQL cluster',
      );
      expect(await readFile(mine, 'utf8')).toBe('dear diary');
    }));

  test('whose server refuses to start is told with its own reason', () =>
    withDataDir(async (dataDir) => {
      await prepareCluster(dataDir);
      await writeFile(join(dataDir, 'postgres', 'postgresql.conf'), 'no_such_setting = 1\n');
      await expect(startEmbeddedPostgres({ dataDir, log })).rejects.toThrow(
        /^PostgreSQL on .* did not start: .*contains errors/,
      );
      expect(serversOn(dataDir)).toEqual([]);
    }));
});
