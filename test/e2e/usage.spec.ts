import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type GrantedApi, GrantSeal, KEY_PREFIXES } from '../../src/gateway/grants.js';
import { GRANT_KEYS, KeyRing } from '../../src/secrets/key-ring.js';
import {
  MODEL_KEY,
  type ModelEndpoint,
  startModelEndpoint,
  usedBy,
} from '../runtimes/model-endpoint/model-endpoint.js';
import { runCli } from '../support/cli.js';
import { HttpClient } from '../support/http-client.js';
import { describeWith } from '../support/requirements.js';
import { commandOf, processesWithin } from '../support/sandbox-processes.js';
import { ENCRYPTION_KEYS, query, type Service, type TestUser } from '../support/service.js';
import {
  eventually,
  leaveNothing,
  NO_USAGE,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const MODELS: Record<GrantedApi, string> = {
  anthropic: 'claude-haiku-4-5-20251001',
  openai: 'gpt-5-2025-08-07',
  google: 'gemini-2.5-pro',
};
/** For long runs by hand: how often the service and the gateway are killed, in turns. */
const KILL_ROUNDS = Number(process.env['KILL_ROUNDS'] ?? 4);
/** Requests of a script in a sandbox. `K` is the grant. */
const CALLS = {
  anthropic: (stream: boolean) => ({
    path: '/anthropic/v1/messages',
    body: { model: MODELS.anthropic, stream, messages: [{ role: 'user', content: 'hi' }] },
  }),
  responses: (stream: boolean) => ({
    path: '/openai/v1/responses',
    body: { model: MODELS.openai, stream, input: 'hi' },
  }),
  chat: () => ({
    path: '/openai/v1/chat/completions',
    body: { model: MODELS.openai, stream: true, messages: [{ role: 'user', content: 'hi' }] },
  }),
  google: (stream: boolean) => ({
    path: `/google/v1beta/models/${MODELS.google}:${stream ? 'streamG' : 'g'}enerateContent`,
    body: { contents: [{ role: 'user', parts: [{ text: 'hi' }] }] },
  }),
};
type Call = ReturnType<(typeof CALLS)[keyof typeof CALLS]>;

/** A script that fetches its grant and sends a request. */
const curl = ({ path, body }: Call, more = '') =>
  `curl -sN ${more} -H "Authorization: Bearer $K" -H 'Content-Type: application/json' ` +
  `-d '${JSON.stringify(body)}' http://127.0.0.1${path}`;

describeWith(['sandboxes'], 'usage', () => {
  let model: ModelEndpoint;
  let database: TestDatabase;
  let dataDir: string;
  let service: Service;
  let user: TestUser;
  let sessions: SessionsOf;
  /** What scripts fetch at `/grant/NAME`. */
  const grants = new Map<string, string>();
  /** Scripts that wait at `/gate/N` go on when N is below this. */
  let openGates = 0;
  /** The highest gate that a script has waited at. */
  let seenGate = -1;
  const seal = new GrantSeal(KeyRing.parse(ENCRYPTION_KEYS).derive(GRANT_KEYS));

  const users: TestUser[] = [];
  const createUser = async (): Promise<TestUser> => {
    const made = await service.createUser();
    users.push(made);
    return made;
  };
  const start = async (): Promise<Service> =>
    startSessionService(
      {
        OPENAI_BASE_URL: model.url,
        METRICS_PORT: '0',
        TOKENS_PER_MONTH: '0',
      },
      { databaseUrl: database.url, dataDir },
    );
  const restart = async (): Promise<void> => {
    service = await start();
    user = { ...user, http: new HttpClient(service.url, user.token) };
    sessions = new SessionsOf(service, user);
  };
  beforeAll(async () => {
    model = await startModelEndpoint((request, response) => {
      const [, gate] = /^\/gate\/(\d+)$/.exec(request.url ?? '') ?? [];
      if (gate !== undefined) {
        seenGate = Math.max(seenGate, Number(gate));
        response.statusCode = Number(gate) < openGates ? 200 : 404;
        response.end();
        return true;
      }
      const [, name] = /^\/grant\/(\S+)$/.exec(request.url ?? '') ?? [];
      if (name === undefined) return false;
      response.statusCode = grants.has(name) ? 200 : 404;
      response.end(grants.get(name));
      return true;
    });
    database = await createTestDatabase();
    dataDir = await mkdtemp(join(tmpdir(), 'usage-'));
    service = await start();
    user = await createUser();
    sessions = new SessionsOf(service, user);
  });
  afterAll(async () => {
    await leaveNothing(
      service,
      users.map(
        (each) =>
          new SessionsOf(service, { ...each, http: new HttpClient(service.url, each.token) }),
      ),
    );
    await service.stop();
    await model.stop();
    await database.drop();
    await rm(dataDir, { recursive: true, force: true });
  });

  let names = 0;
  /** A script with the grant `K` for one API. A shell session has none, so the test issues it once the turn is there. */
  const script = (api: GrantedApi, lines: string) => {
    names += 1;
    const name = `${api}-${names}`;
    const text = `until K=$(curl -sf ${model.url}/grant/${name}); do sleep 0.05; done\n${lines}`;
    const issue = async (session: string, owner = user): Promise<void> => {
      const turn = await eventually(
        async () => (await new SessionsOf(service, owner).turns(session)).at(-1)?.id as string,
        'the turn',
      );
      const base = { session, turn, user: owner.userId, sandbox: null };
      const expires = Date.now() + 600_000;
      const key = seal.seal({
        ...base,
        expires,
        kind: 'model',
        api,
        url: model.url,
        key: MODEL_KEY,
      });
      grants.set(name, KEY_PREFIXES[api] + key);
    };
    return { text, issue };
  };
  const run = async (api: GrantedApi, lines: string, members: object = {}, owner = user) => {
    const own = new SessionsOf(service, owner);
    const { text, issue } = script(api, lines);
    const id = await own.create(text, members);
    await issue(id, owner);
    return { id, stream: await own.stream(id).end() };
  };
  const usageOf = async (id: string) =>
    (await sessions.get(id))['usage'] as Record<string, number | null> & { requests: number };

  it('of a session without requests is zero, and its time is counted', async () => {
    const id = await sessions.completed('sleep 0.5');
    expect(await usageOf(id)).toEqual({ ...NO_USAGE, active_seconds: expect.any(Number) });
    expect((await usageOf(id))['active_seconds']).toBeGreaterThan(0.4);
  });

  it.each([
    ['anthropic', [CALLS.anthropic(true), CALLS.anthropic(false)]],
    ['openai', [CALLS.responses(true), CALLS.chat()]],
    ['google', [CALLS.google(true), CALLS.google(false)]],
  ] as const)('of %s is what the model counts, on turns, session and list', async (api, calls) => {
    const before = model.requests.length;
    const { id, stream } = await run(api, calls.map((call) => curl(call)).join('\n'));
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    const first = usedBy(model.requests.slice(before));
    expect(first.requests).toBe(2);
    expect(await usageOf(id)).toMatchObject(first);
    const { text, issue } = script(api, curl(calls[0]));
    await sessions.prompt(id, text);
    await issue(id);
    await sessions.stream(id).end();
    await sessions.reach(id, 'completed');

    const all = usedBy(model.requests.slice(before));
    const second = usedBy(model.requests.slice(before + 2));
    expect((await sessions.turns(id)).map(({ usage }) => usage)).toMatchObject([first, second]);
    const session = await sessions.get(id);
    expect(session['usage']).toMatchObject(all);
    const listed = (await sessions.http.get('/sessions')).body.data as { id: string }[];
    expect(listed.find((each) => each.id === id)).toMatchObject({ usage: all, budget: null });

    const prices = {
      anthropic: [1, 5, 0.1, 1.25],
      openai: [1.25, 10, 0.125, 0],
      google: [1.25, 10, 0.125, 0],
    };
    const [input = 0, output = 0, read = 0, creation = 0] = prices[api];
    const cost =
      (all.input_tokens * input +
        all.output_tokens * output +
        all.cache_read_input_tokens * read +
        all.cache_creation_input_tokens * creation) /
      1e6;
    expect((await usageOf(id))['cost_usd']).toBeCloseTo(cost, 9);
  });

  it('has no cost if the price of a model is not known', async () => {
    const call = CALLS.anthropic(true);
    const body = { ...call.body, model: 'unheard-of' };
    const { id } = await run('anthropic', `${curl(call)}\n${curl({ ...call, body })}`);
    expect(await usageOf(id)).toMatchObject({ requests: 2, cost_usd: null });
  });

  const killing = async () => {
    const before = model.requests.length;
    const victims = Array.from({ length: KILL_ROUNDS }, (_, n) => (n % 2 ? 'gateway' : 'service'));
    const count = 5;
    const requests = Array.from({ length: count * (victims.length + 1) }, (_, n) => {
      const gate = `until curl -sf ${model.url}/gate/${n}; do sleep 0.02; done`;
      // A silent turn that has lost its worker too often is given up, see TURN_CLAIM_LIMIT.
      return `${gate}\n${curl(CALLS.anthropic(true), '-o /dev/null')}; echo ${n}`;
    });
    const { text, issue } = script('anthropic', requests.join('\n'));
    const id = await sessions.create(text);
    await issue(id);
    for (const [round, victim] of victims.entries()) {
      const last = (round + 1) * count;
      openGates = last;
      // The script has all answers so far when it waits at the next gate.
      await eventually(() => seenGate >= last, 'requests');
      await delay(100);
      if (victim === 'service') {
        await service.kill9();
        openGates = last + 2;
        await eventually(() => seenGate >= last + 2, 'requests without a service');
        await restart();
      } else {
        const gateways = processesWithin(dataDir).filter((pid) =>
          commandOf(pid).includes('gateway/main.js'),
        );
        expect(gateways.length).toBeGreaterThan(0);
        for (const pid of gateways) process.kill(pid, 'SIGKILL');
      }
    }
    openGates = requests.length;
    const stream = await sessions.stream(id).end();
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    const counted = usedBy(model.requests.slice(before));
    expect(counted.requests).toBe(requests.length);
    await eventually(
      async () => (await usageOf(id)).requests >= counted.requests,
      'all requests',
    ).catch(() => undefined);
    expect(await usageOf(id)).toMatchObject(counted);
    const rows = await query(
      service.databaseUrl,
      'SELECT 1 FROM usage_requests WHERE session_id = $1',
      [id],
    );
    expect(rows).toHaveLength(counted.requests);
  };
  it(
    'counts each request once when the service and the gateway are killed',
    killing,
    60_000 + KILL_ROUNDS * 30_000,
  );

  it('beyond the budget of the session is refused, and ends the turn', async () => {
    const own = await createUser();
    const before = model.requests.length;
    const lines = `${curl(CALLS.anthropic(true), '-o /dev/null')}; sleep 1; while true; do ${curl(CALLS.anthropic(true), "-w '%{http_code}'")}; sleep 0.2; done`;
    const { id, stream } = await run('anthropic', lines, { budget: { tokens: 500 } }, own);
    const message = 'Session has used up its budget of 500 tokens';
    expect(stream.last).toMatchObject({ type: 'error', message });
    expect(model.requests.length - before).toBe(1);
    const { body } = await own.http.get(`/sessions/${id}`);
    expect(body).toMatchObject({ status: 'failed', error: message, budget: { tokens: 500 } });
    expect(body).toMatchObject({ usage: { requests: 1 } });
  });

  it('of a completed session that is over budget allows no further prompt', async () => {
    const own = await createUser();
    const usd = { budget: { usd: 0.0000001 } };
    const { id } = await run('anthropic', 'true', usd, own);
    const own2 = new SessionsOf(service, own);
    await own2.reach(id, 'completed');
    const [turn] = await own2.turns(id);
    await query(
      service.databaseUrl,
      `INSERT INTO usage_sessions (session_id, cost_usd) VALUES ($1, 1)`,
      [id],
    );
    expect(turn).toMatchObject({ usage: { requests: 0 } });
    const answer = await own.http.post(`/sessions/${id}/prompt`, { prompt: 'echo' });
    expect([answer.status, answer.body]).toEqual([
      409,
      { detail: 'Session has used up its budget of 1e-7 USD; start a new session.' },
    ]);
  });

  it('beyond the budget of the user ends turns and refuses new ones', async () => {
    const own = await createUser();
    const [row] = await query<{ name: string }>(
      service.databaseUrl,
      'SELECT name FROM users WHERE id = $1',
      [own.userId],
    );
    const name = row?.name ?? '';
    const env = { DATABASE_URL: service.databaseUrl, DATA_DIR: dataDir };
    await runCli(['user', 'limit', name, '--tokens-per-month', '2000'], env);
    const one = curl(CALLS.responses(true), '-o /dev/null');
    const { stream } = await run('openai', `${one}; ${one}; sleep 30`, {}, own);
    const message = 'User has used up the budget of 2000 tokens for this month';
    expect(stream.last).toMatchObject({ type: 'error', message });
    const refused = await new SessionsOf(service, own).post('echo');
    expect([refused.status, refused.body]).toEqual([422, { detail: message }]);
    await runCli(['user', 'limit', name, '--tokens-per-month', 'default'], env);
    expect((await new SessionsOf(service, own).post('echo')).status).toBe(202);

    const { stdout } = await runCli(['usage', '--user', name, '--since', '1d', '--json'], env);
    expect(JSON.parse(stdout)).toMatchObject({
      data: [{ user: name, provider: 'openai', model: MODELS.openai, requests: 2 }],
    });
    expect((await runCli(['usage'], env)).stdout).toContain(MODELS.google);
  });

  it.each([
    [{ tokens: 0 }, ['body', 'budget', 'tokens']],
    [{ usd: 'much' }, ['body', 'budget', 'usd']],
    ['small', ['body', 'budget']],
  ])('has no budget of %j', async (budget, loc) => {
    const { status, body } = await sessions.post('echo', { budget });
    expect(status).toBe(422);
    expect(body['detail']).toMatchObject([{ loc }]);
  });

  it('of a model without a price has no budget in USD', async () => {
    const made = await sessions.http.post('/agents', {
      name: 'a',
      provider: 'openai',
      model: 'gpt-unheard-of',
    });
    const { status, body } = await sessions.http.post('/sessions', {
      agent_id: made.body.id,
      prompt: 'x',
      budget: { usd: 1 },
    });
    expect([status, body]).toMatchObject([400, {}]);
  });
});
