import { readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { median } from '../lib/statistics.mjs';
import { startHelper } from '../lib/rpc.mjs';
import { pgbench, runPgbench } from '../references/postgres.mjs';
import { startSourceService } from '../lib/subjects.mjs';

const LOAD = fileURLToPath(new URL('../lib/http-load.mjs', import.meta.url));
const BARE = fileURLToPath(new URL('../references/fastify-pg.mjs', import.meta.url));

export const title = 'API: GET /agents/{id} and POST /agents, authenticated';
export const metrics = {
  get1: 'GET, one connection, p50 ms',
  post1: 'POST, one connection, p50 ms',
  get16: 'GET, 16 connections, requests a second',
  post16: 'POST, 16 connections, requests a second',
};
export const goals = [
  { label: 'GET p50 / pgbench select', metric: 'get1', against: 'pgbench', atMost: 3 },
  { label: 'POST p50 / pgbench insert', metric: 'post1', against: 'pgbench', atMost: 3 },
  { label: 'GET on 16 / Fastify + pg', metric: 'get16', against: 'fastify-pg', atLeast: 0.85 },
  { label: 'POST on 16 / Fastify + pg', metric: 'post16', against: 'fastify-pg', atLeast: 0.85 },
];

const BODY = {
  name: 'bench',
  provider: 'shell',
  model: 'shell/bash',
  system: 'Be brief.',
  metadata: { team: 'growth' },
};

export async function open({ say, tiny, profile }) {
  const seconds = tiny ? 0.3 : 2;
  const service = await startSourceService({ profile });
  const load = await startHelper(LOAD);
  const bare = await startHelper(BARE);
  const bareUrl = await bare.call('start', { url: service.databaseUrl });
  const { id } = await service.post('/agents', BODY);
  const headers = { authorization: service.authorization };

  const overHttp = async (port) => {
    const get = { port, method: 'GET', path: `/agents/${id}`, headers, seconds };
    const post = { ...get, method: 'POST', path: '/agents', body: JSON.stringify(BODY) };
    return {
      get1: (await load.call('run', { ...get, connections: 1 })).p50,
      post1: (await load.call('run', { ...post, connections: 1 })).p50,
      get16: (await load.call('run', { ...get, connections: 16 })).rate,
      post16: (await load.call('run', { ...post, connections: 16 })).rate,
    };
  };
  const contenders = {
    service: () => overHttp(service.port),
    'fastify-pg': () => overHttp(Number(new URL(bareUrl).port)),
  };
  if (pgbench === undefined)
    say('  without pgbench: it is not installed (apt-get install postgresql-contrib)');
  else {
    const { rows } = await service.database.query('SELECT user_id FROM agents WHERE id = $1', [id]);
    const owner = rows[0].user_id;
    const measure = async (script, clients) => {
      const logPrefix = join(tmpdir(), `bench-pgbench-${process.pid}`);
      const whole = Math.max(1, Math.round(seconds));
      const rate = await runPgbench({
        url: service.databaseUrl,
        script,
        clients,
        seconds: whole,
        logPrefix,
      });
      return { rate, p50: await p50OfLogs(logPrefix) };
    };
    contenders.pgbench = async () => {
      const select = `SELECT * FROM agents WHERE id = '${id}' AND user_id = '${owner}';\n`;
      const insert =
        `INSERT INTO agents (id, user_id, name, provider, model, system, skills, mcp_servers, metadata)
        VALUES (gen_random_uuid(), '${owner}', 'bench', 'shell', 'shell/bash', 'Be brief.', '[]', '[]', '{"team":"growth"}') RETURNING *;\n`.replaceAll(
          /\s+/g,
          ' ',
        );
      const [get1, post1] = [await measure(select, 1), await measure(insert, 1)];
      const [get16, post16] = [await measure(select, 16), await measure(insert, 16)];
      return { get1: get1.p50, post1: post1.p50, get16: get16.rate, post16: post16.rate };
    };
  }
  const close = () => Promise.all([load, bare].map((one) => one.stop())).then(() => service.stop());
  return { contenders, close };
}

/** pgbench logs each transaction: the third number is its time in microseconds. */
async function p50OfLogs(prefix) {
  const names = (await readdir(dirname(prefix))).filter((name) =>
    name.startsWith(basename(prefix)),
  );
  const times = [];
  for (const name of names) {
    const path = join(dirname(prefix), name);
    const text = await readFile(path, 'utf8');
    for (const line of text.split('\n'))
      if (line !== '') times.push(Number(line.split(' ')[2]) / 1000);
    await rm(path);
  }
  return median(times);
}
