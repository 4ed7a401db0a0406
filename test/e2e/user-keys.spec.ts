import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { auditLines } from '../support/audit-lines.js';
import { type CliResult, runCli } from '../support/cli.js';
import { dumpOf, watchProcesses } from '../support/leaks.js';
import { testWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const KEY = 'sk-planted-own-key-0123456789';
const NO_KEY = { detail: 'Provider anthropic has no API key configured' };

let service: Service;
let keyed: SessionsOf;
let other: SessionsOf;
let name: string;
beforeAll(async () => {
  service = await startSessionService({
    ANTHROPIC_API_KEY: undefined,
    OPENAI_API_KEY: undefined,
    LOG_LEVEL: 'verbose',
  });
  keyed = new SessionsOf(service, service);
  other = new SessionsOf(service, await service.createUser());
  name = await nameOf(service.userId);
});
afterAll(async () => {
  await leaveNothing(service, [keyed, other]);
  await service.stop();
});

async function nameOf(userId: string): Promise<string> {
  const [row] = await query<{ name: string }>(
    service.databaseUrl,
    'SELECT name FROM users WHERE id = $1',
    [userId],
  );
  return row?.name ?? '';
}

/** @param action `set`, `list` or `remove` */
function key(action: string, args: readonly string[], input = ''): Promise<CliResult> {
  const { databaseUrl, dataDir } = service;
  const env = { DATABASE_URL: databaseUrl, DATA_DIR: dataDir };
  return runCli(['user', 'key', action, ...args], env, input);
}

const agentOf = (sessions: SessionsOf, provider: string, model: string) =>
  sessions.createAgent({ provider, model });

describe("a user's own key", () => {
  it('is stored for one provider, whatever it is called, and never shown', async () => {
    const processes = watchProcesses();
    const made = await key('set', [name, 'codex', '--json'], `${KEY}\n`);
    expect(await processes.stop()).not.toContain(KEY);
    expect(made).toMatchObject({ code: 0, stderr: '', json: { user: name, provider: 'openai' } });
    const [stored] = (await key('list', [name, '--json'])).json.data as Record<string, string>[];
    expect(stored).toEqual({
      provider: 'openai',
      created_at: expect.stringMatching(/\.\d{6}\+00:00$/),
      updated_at: stored?.created_at,
    });
    expect((await key('set', [name, 'openai'], KEY)).code).toBe(0);
    const listed = await key('list', [name]);
    expect(listed.stdout).toMatch(/^PROVIDER +CREATED +UPDATED\nopenai +\S+ +\S+\n$/);
    const all = (await key('list', [name, '--json'])).json.data as Record<string, string>[];
    expect(all).toHaveLength(1);
    expect(all[0]?.created_at).toBe(stored?.created_at);
    expect(all[0]?.updated_at).not.toBe(stored?.updated_at);

    expect((await key('remove', [name, 'openai'])).code).toBe(0);
    expect((await key('list', [name, '--json'])).json).toEqual({ data: [] });
    const again = await key('remove', [name, 'openai']);
    expect([again.code, again.stderr]).toEqual([3, expect.stringMatching(/^error: .+\n$/)]);
    await eventually(() => auditLines(service).length >= 4, 'the audit lines');
    const lines = auditLines(service).map(({ action, object, result }) => [action, object, result]);
    expect(lines).toEqual([
      ['user key set', `${name} openai`, 'done'],
      ['user key set', `${name} openai`, 'done'],
      ['user key remove', `${name} openai`, 'done'],
      ['user key remove', name, 'not_found'],
    ]);
    for (const text of [made.stdout, listed.stdout, service.logs()])
      expect(text).not.toContain(KEY);
    expect(await dumpOf(service.databaseUrl)).not.toContain(KEY);
  });

  it.each([
    ['an empty one', ''],
    ['only a newline', '\n'],
    ['two lines', `${KEY}\n${KEY}\n`],
    ['two newlines at its end', `${KEY}\n\n`],
    ['a space', 'sk planted'],
    ['a control character', 'sk-\u0007'],
    ['another character than ASCII', 'sk-ü'],
    ['too long a one', 'x'.repeat(4097)],
    ['a file that has no end', 'x'.repeat(2 ** 20)],
  ])('is refused: %s', async (_what, input) => {
    const refused = await key('set', [name, 'google'], input);
    expect([refused.code, refused.stdout]).toEqual([2, '']);
    expect(refused.stderr).toMatch(/^error: [^\n]+\n$/);
    expect(refused.stderr).not.toContain('planted');
    expect(await query(service.databaseUrl, 'SELECT FROM user_keys')).toEqual([]);
  });

  it('is refused for an unknown user or provider, and not logged when it is an argument', async () => {
    expect((await key('set', ['nobody', 'openai'], KEY)).code).toBe(3);
    const before = auditLines(service).length;
    for (const args of [
      [name, 'opencode'],
      [name, KEY],
    ]) {
      const refused = await key('set', args, KEY);
      expect([refused.code, refused.stdout]).toEqual([2, '']);
      expect(refused.stderr).not.toContain(KEY);
    }
    await key('set', [KEY, 'openai'], KEY);
    await eventually(() => auditLines(service).length >= before + 3, 'the audit lines');
    expect(service.logs()).not.toContain(KEY);
  });

  testWith(['bubblewrap'], 'gives its user, and nobody else, the provider', async () => {
    const prompt = 'sleep';
    const agents = await Promise.all(
      [keyed, other].map((user) => agentOf(user, 'claude', 'claude-scripted')),
    );
    const start = (index: number) =>
      [keyed, other][index]?.post(prompt, { agent_id: agents[index] });
    expect(await start(0)).toMatchObject({ status: 400, body: NO_KEY });
    expect((await key('set', [name, 'anthropic'], KEY)).code).toBe(0);
    const accepted = await start(0);
    expect(accepted?.status).toBe(202);
    expect(await start(1)).toMatchObject({ status: 400, body: NO_KEY });
    // The key is for one API, whichever runtime uses it.
    const opencode = await agentOf(keyed, 'opencode', 'openai/gpt-scripted');
    expect(await keyed.post(prompt, { agent_id: opencode })).toMatchObject({
      status: 400,
      body: { detail: 'Provider opencode has no API key configured for models of openai' },
    });
    expect((await key('remove', [name, 'anthropic'])).code).toBe(0);
    expect(await start(0)).toMatchObject({ status: 400, body: NO_KEY });
    await keyed.http.post(`/sessions/${accepted?.body.id}/terminate`);
  });

  it('is deleted with its user', async () => {
    const { userId } = await service.createUser();
    expect((await key('set', [await nameOf(userId), 'google'], KEY)).code).toBe(0);
    const { databaseUrl } = service;
    await query(databaseUrl, 'DELETE FROM users WHERE id = $1', [userId]);
    const left = await query(databaseUrl, 'SELECT FROM user_keys WHERE user_id = $1', [userId]);
    expect(left).toEqual([]);
  });
});
