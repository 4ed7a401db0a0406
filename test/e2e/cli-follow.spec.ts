import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { runCli } from '../support/cli.js';
import { PATIENCE_MS } from '../support/patience.js';
import { describeWith } from '../support/requirements.js';
import { ENCRYPTION_KEYS, type Service } from '../support/service.js';
import { eventually, SessionsOf, startSessionService } from '../support/sessions.js';

const MAIN = join(dirname(fileURLToPath(import.meta.url)), '../../dist/src/cli/main.js');

let service: Service;
let sessions: SessionsOf;

/** `sessions follow` as a process of its own that can be looked at while it runs. */
function startFollow(args: readonly string[]) {
  const child = spawn(process.execPath, [MAIN, 'sessions', 'follow', ...args], {
    env: {
      ...process.env,
      NODE_OPTIONS: undefined,
      ENCRYPTION_KEYS,
      DATABASE_URL: service.databaseUrl,
      DATA_DIR: service.dataDir,
      AGENT_SESSIONS_TOKEN: service.token,
      FORCE_COLOR: '1',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: PATIENCE_MS,
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
  }
  const exited = new Promise<number | null>((resolve) => child.once('close', resolve));
  return {
    text: () => text,
    exited,
    prints: (what: string) => eventually(() => text.includes(what), `${what} in ${text}`),
  };
}

describeWith(['sandboxes'], 'sessions follow', () => {
  beforeAll(async () => {
    service = await startSessionService();
    sessions = new SessionsOf(service, service);
  });
  afterAll(() => service.stop());

  it('prints what a client of the service reads, by way of the database and of the service', async () => {
    const id = await sessions.create('echo one; echo two >&2; exit 3');
    const stream = await sessions.stream(id).end();
    const ways = [[], ['--url', service.url, '--token', service.token]];
    for (const way of ways) {
      const env = { DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir };
      const { code, stdout } = await runCli(['sessions', 'follow', id, ...way], env);
      expect(code).toBe(7);
      expect(stdout).toContain(`Session ${id}, shell\n`);
      expect(stdout).toMatch(/^✓ create_sprite +[\d.]+ m?s$/m);
      expect(stdout).toContain('── turn 1\none\ntwo\n✗ exited with 3\n');
      const events = startFollow([id, ...way, '--json']);
      expect(await events.exited).toBe(7);
      const lines = events.text().trim().split('\n');
      expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(stream.events);
    }
    const last = stream.events.at(-2)?.id ?? 0;
    const rest = startFollow([id, '--since', String(last), '--json']);
    await rest.exited;
    expect(rest.text().split('"type"').length - 1).toBe(2);
  });

  it('goes on by itself, in colour, when the service is gone for a while, and loses nothing', async () => {
    const script = 'for i in $(seq 8); do echo "line $i"; sleep 0.5; done';
    const id = await sessions.create(script);
    const port = new URL(service.url).port;
    const followed = startFollow([id, '--url', service.url]);
    await followed.prints('line 2\n');
    const { databaseUrl, dataDir } = service;
    await service.kill9();
    await followed.prints('trying again');
    const again = await startSessionService({ PORT: port }, { databaseUrl, dataDir });
    try {
      expect(await followed.exited).toBe(0);
    } finally {
      await again.stop();
    }
    const plain = stripVTControlCharacters(followed.text());
    expect(followed.text()).not.toBe(plain);
    const printed = plain.split('\n').filter((line) => line.startsWith('line '));
    expect(printed).toEqual(Array.from({ length: 8 }, (_, index) => `line ${index + 1}`));
    expect(plain.match(/^Session /gm)).toHaveLength(1);
    expect(plain).toMatch(/✓ exited with 0\n$/);
  });
});
