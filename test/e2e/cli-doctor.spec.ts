import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { checkStream } from '../../src/cli/doctor/stream-check.js';
import { type CliResult, runCli } from '../support/cli.js';
import { type Nginx, startNginx } from '../support/nginx.js';
import { describeWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import { remains } from '../support/sandbox-remains.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

interface Finding {
  check: string;
  verdict: string;
  message: string;
  advice?: string;
}

let service: Service;

/** What doctor says of each check, and its exit code. */
async function doctor(args: readonly string[], env: Record<string, string | undefined> = {}) {
  const result: CliResult = await runCli(['doctor', ...args, '--json'], {
    DATABASE_URL: service.databaseUrl,
    DATA_DIR: service.dataDir,
    ...env,
  });
  const { findings } = JSON.parse(result.stdout) as { findings: Finding[] };
  const verdicts = Object.fromEntries(findings.map(({ check, verdict }) => [check, verdict]));
  for (const { check, verdict, advice } of findings) {
    const said = verdict === 'ok' || verdict === 'skip' || (advice ?? '') !== '';
    expect([check, said]).toEqual([check, true]);
  }
  return { code: result.code, verdicts, findings, text: result.stdout };
}

describeWith(['bubblewrap'], 'doctor', () => {
  beforeAll(async () => {
    service = await startSessionService({ HEARTBEAT_SECONDS: '0.5' });
    await chmod(service.dataDir, 0o755);
  });
  afterAll(() => service.stop());

  it('finds nothing wrong with a service that is well, and leaves nothing behind', async () => {
    const { code, verdicts, text } = await doctor(['--only', 'database', 'keys', 'sandboxes']);
    expect([code, verdicts]).toEqual([
      0,
      {
        configuration: 'ok',
        database: 'ok',
        migrations: 'ok',
        connections: 'ok',
        notifications: 'ok',
        clock: 'ok',
        partitions: 'ok',
        workers: 'ok',
        queue: 'ok',
        keys: 'ok',
        driver: 'ok',
        installation: 'ok',
        // The kernel does not hold all limits where the service is an ordinary user.
        limits: process.geteuid?.() === 0 ? 'ok' : expect.any(String),
        isolation: 'ok',
      },
    ]);
    expect(text).not.toContain(new URL(service.databaseUrl).password || 'no password');
    expect(await query(service.databaseUrl, 'SELECT FROM sandboxes')).toEqual([]);
    await eventually(() => remains(service.dataDir).length === 0, 'nothing to be left');
  });

  it('leaves the gateway of the service alone', async () => {
    const sessions = new SessionsOf(service, service);
    await sessions.run('echo hi');
    const log = () => readFile(join(service.dataDir, 'gateway', 'log'), 'utf8');
    const starts = async () => (await log()).match(/"event":"started"/g);
    expect(await starts()).toHaveLength(1);
    const { verdicts } = await doctor(['--only', 'sandboxes']);
    expect(verdicts).toMatchObject({ driver: 'ok', isolation: 'ok' });
    expect(await starts()).toHaveLength(1);
    await leaveNothing(service, [sessions]);
  });

  it('finds what is wrong with keys, partitions, migrations and the queue, and changes none of it', async () => {
    const { databaseUrl } = service;
    await query(
      databaseUrl,
      `INSERT INTO encryption_keys (id, probe) VALUES ('lost', 'v1.lost.x')`,
    );
    await query(databaseUrl, 'CREATE TABLE event_log_20200101 (LIKE event_log)');
    await query(
      databaseUrl,
      `ALTER TABLE event_log ATTACH PARTITION event_log_20200101
       FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`,
    );
    await query(databaseUrl, `INSERT INTO migrations (timestamp, name) VALUES (9, 'Later9')`);
    const later = await doctor(['--only', 'database', 'keys']);
    expect(later).toMatchObject({
      code: 7,
      verdicts: { keys: 'fail', partitions: 'warn', migrations: 'warn' },
    });
    await query(databaseUrl, `DELETE FROM migrations WHERE name <> 'Later9'`);
    const empty = await doctor(['--only', 'keys']);
    expect(empty).toMatchObject({ code: 7, verdicts: { migrations: 'fail', keys: 'skip' } });
    const rows = await query(databaseUrl, 'SELECT FROM migrations');
    expect(rows).toHaveLength(1);
  });

  it('says of a database that is not there and of a bad variable what it can', async () => {
    const DATA_DIR = await mkdtemp(join(tmpdir(), 'doctor-'));
    try {
      const nowhere = 'postgres://someone:hunter2@127.0.0.1:1/x';
      const gone = await doctor(['--only', 'database', 'keys', 'disk'], {
        DATABASE_URL: nowhere,
        DATA_DIR,
      });
      expect(gone).toMatchObject({ code: 7, verdicts: { database: 'fail', keys: 'skip' } });
      expect(gone.text).not.toContain('hunter2');
      const bad = await doctor([], { PORT: 'x' });
      expect([bad.code, bad.verdicts]).toEqual([7, { configuration: 'fail' }]);
    } finally {
      await rm(DATA_DIR, { recursive: true, force: true });
    }
  });
});

describeWith(['bubblewrap', 'nginx'], 'doctor, of streams through nginx', () => {
  const OK = { buffering: 'ok', compression: 'ok', silence: 'ok', resumption: 'ok' };
  const SITES = {
    'as it comes': '',
    'with proxy_buffering off': 'proxy_buffering off;',
    'that buffers whatever the service says': 'proxy_ignore_headers X-Accel-Buffering;',
    'with gzip for pages': 'gzip on; gzip_proxied any;',
    'with gzip for streams':
      'gzip on; gzip_proxied any; gzip_min_length 0; gzip_types text/event-stream;',
    'with a short proxy_read_timeout': 'proxy_read_timeout 1s;',
    'that drops Last-Event-ID': 'proxy_set_header Last-Event-ID "";',
  } as const;
  const EXPECTED: Record<keyof typeof SITES, Record<string, string>> = {
    'as it comes': OK,
    'with proxy_buffering off': OK,
    'that buffers whatever the service says': { ...OK, buffering: 'fail', silence: 'skip' },
    'with gzip for pages': OK,
    'with gzip for streams': { ...OK, compression: 'warn' },
    'with a short proxy_read_timeout': { ...OK, silence: 'fail' },
    'that drops Last-Event-ID': { ...OK, resumption: 'fail' },
  };

  /** Its streams are silent for longer than any test waits, so that a proxy that waits less always cuts them. */
  const SILENT = 'with a short proxy_read_timeout';
  let silent: Service;
  let nginx: Nginx<keyof typeof SITES>;
  const serviceOf = (site: keyof typeof SITES): Service => (site === SILENT ? silent : service);
  beforeAll(async () => {
    service = await startSessionService({ HEARTBEAT_SECONDS: '2' });
    silent = await startSessionService({ HEARTBEAT_SECONDS: '3600' });
    nginx = await startNginx((site) => serviceOf(site).url, SITES);
  });
  afterAll(async () => {
    await nginx.stop();
    await service.stop();
    await silent.stop();
  });

  it('tells what nginx really does to them', async () => {
    const names = Object.keys(SITES) as (keyof typeof SITES)[];
    const seen = await Promise.all(
      names.map(async (name) => {
        const options = { token: serviceOf(name).token, silenceSeconds: 40, holdSeconds: 0 };
        const findings = await checkStream({ url: nginx.urls[name], ...options });
        return [name, findings] as const;
      }),
    );
    for (const [name, findings] of seen) {
      for (const { check, verdict, message } of findings) {
        // A busy machine is late by itself, and a stream may be cut before all lines were written; how late is too late
        // is for the unit tests to say.
        const late = check === 'buffering' && verdict !== EXPECTED[name][check];
        if (late && (verdict === 'warn' || name === SILENT)) continue;
        expect([name, check, verdict, message]).toEqual([
          name,
          check,
          EXPECTED[name][check],
          message,
        ]);
      }
    }
    for (const { http } of [service, silent]) {
      expect((await http.get('/sessions')).body.data).toEqual([]);
      expect((await http.get('/agents')).body.data).toEqual([]);
    }
  });

  it('prints it, and fails by its exit code', async () => {
    const url = nginx.urls['that buffers whatever the service says'];
    const { code, verdicts } = await doctor(['--only', 'stream', '--url', url], {
      AGENT_SESSIONS_TOKEN: service.token,
    });
    expect([code, verdicts['buffering']]).toEqual([7, 'fail']);
  });

  it('says why nothing can be measured', async () => {
    const of = async (url: string, token: string) => {
      const [finding] = await checkStream({ url, token, silenceSeconds: 1, holdSeconds: 0 });
      return [finding?.verdict, finding?.message];
    };
    const refused = await of(service.url, 'ast_nonsense');
    const wrong = await of(`${service.url}/v2`, service.token);
    const nowhere = await of('http://127.0.0.1:65000', service.token);
    expect(refused).toEqual(['fail', expect.stringContaining('401')]);
    expect(wrong).toEqual(['fail', expect.stringContaining('404')]);
    expect(nowhere).toEqual(['fail', expect.stringContaining('65000')]);
  });
});
