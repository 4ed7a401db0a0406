import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { testWith } from '../support/requirements.js';
import { CLIS, describeCli, type Cli } from './support/clis.js';
import { brokenServer, httpServer, sseServer, stdioServer } from './support/mcp-servers.js';
import { MODEL_KEY } from './model-endpoint/model-endpoint.js';
import { Rig, type RunningSession } from './support/rig.js';

/** A first session may have to install hundreds of megabytes. */
const INSTALL_LIMIT_MS = 300_000;
const LIMITED = { networking: { type: 'limited' } };
const SKILL = {
  name: 'juggling',
  description: 'How to juggle word-skill',
  content: 'Three balls.',
};

let rig: Rig;
const sessions: RunningSession[] = [];

beforeAll(async () => {
  rig = await Rig.start();
});

afterAll(async () => {
  for (const session of sessions) await rig.remove(session);
  await rig.stop();
});

async function start(
  cli: Cli,
  prompt: string,
  agent: Record<string, unknown> = {},
  timeout?: number,
) {
  const { provider, model } = cli;
  const session = await rig.session({ provider, model, ...agent }, prompt, {
    environment: LIMITED,
    timeout,
  });
  sessions.push(session);
  return session;
}

/** Requests for an answer to this prompt, not for titles and the like. */
const requestsWith = (word: string) => rig.model.requests.filter(({ text }) => text.includes(word));

for (const cli of CLIS) {
  describeCli(cli, () => {
    test(
      'works with its shell, tool servers and skills, and goes on where it stopped',
      async () => {
        const session = await start(
          cli,
          [
            'word-apple %%shell echo hello from the first turn > note.txt; echo wrote it%%',
            '%%mcp pipes echo {"text":"through pipes"}%%',
            '%%mcp wires echo {"text":"through wires"}%%',
            ...(cli.speaksSse ? ['%%mcp events echo {"text":"through events"}%%'] : []),
          ].join('\n'),
          {
            system: 'You are word-system.',
            mcp_servers: [
              stdioServer('pipes'),
              httpServer('wires', rig.model.url),
              ...(cli.speaksSse ? [sseServer('events', rig.model.url)] : []),
              brokenServer('gone'),
            ],
            skills: [SKILL],
          },
        );
        const first = await rig.finish(session);
        expect(first).toMatchObject({ terminal: { type: 'exit', code: 0 } });
        expect(first.output).toContain('wrote it');
        expect(first.output).toContain('echo through pipes with a secret of 23 characters');
        expect(first.output).toContain('echo through wires with a secret of 33 characters');
        if (cli.speaksSse)
          expect(first.output).toContain('echo through events with a secret of 33 characters');
        expect(first.output).toMatch(/I was sent \d+ messages with word-system word-apple/);
        expect(requestsWith('word-apple').some(({ text }) => text.includes('word-skill'))).toBe(
          true,
        );

        await rig.prompt(
          session,
          '/word-banana %%skill juggling%% %%shell getent hosts elsewhere.example; cat note.txt%%',
        );
        const second = await rig.finish(session, first.terminal.id);
        expect(second).toMatchObject({ terminal: { type: 'exit', code: 0 } });
        expect(second.output).toContain('hello from the first turn');
        expect(second.output).toMatch(/with word-system word-apple( word-skill)? word-banana/);

        // The whole of it again, and from the middle on.
        const replay = await session.stream();
        const replayed = replay.events;
        expect(replayed.filter(({ turn }) => turn === 1)).toEqual(
          first.events.filter(({ turn }) => turn === 1),
        );
        const middle = first.events[Math.floor(first.events.length / 2)]?.id ?? 0;
        expect((await session.stream(middle)).events).toEqual([
          replayed[0],
          ...replayed.filter(({ id }) => id > middle),
        ]);
        expect(replay.output()).not.toContain(MODEL_KEY);
        expect(rig.model.requests.every(({ authorized }) => authorized)).toBe(true);
        // The relay told of every name that was looked up in vain.
        const refused = refusals(session.id).filter((name) => !HARMLESS.test(name));
        expect(new Set(refused)).toEqual(new Set(['elsewhere.example']));
      },
      INSTALL_LIMIT_MS,
    );

    test('fails readably when its key is refused', async () => {
      const begun = Date.now();
      const session = await start(cli, 'word-refused %%fault 401%%');
      const { terminal, output } = await rig.finish(session);
      expect(terminal).toMatchObject({ type: 'exit', code: expect.any(Number) });
      expect(terminal.code).toBeGreaterThan(0);
      expect(terminal.code).toBeLessThan(128);
      expect(output).toMatch(/scripted failure 401|401/);
      const { body } = await rig.http.get(`/sessions/${session.id}`);
      expect(body).toMatchObject({ status: 'failed', exit_code: terminal.code });
      expect(body['error']).toMatch(/401/);
      expect(Date.now() - begun).toBeLessThan(30_000);
    });

    test('fails readably, and in bounded time, when the model keeps failing', async () => {
      const faults = ['429', '500', 'cut'];
      const ended = await Promise.all(
        faults.map(async (fault) => {
          const timeout = cli.triesForever ? 20 : 120;
          const session = await start(cli, `word-${fault} %%fault ${fault}%%`, {}, timeout);
          const { terminal } = await rig.finish(session);
          const { body } = await rig.http.get(`/sessions/${session.id}`);
          expect(body['status']).toBe('failed');
          return { fault, terminal, error: body['error'] };
        }),
      );
      for (const { fault, terminal, error } of ended) {
        const tries = requestsWith(`word-${fault} `).length;
        expect(tries).toBeGreaterThan(0);
        if (cli.triesForever && terminal.type === 'error') {
          expect(error).toMatch(/20/);
          continue;
        }
        expect(terminal.type).toBe('exit');
        expect(terminal.code).toBeGreaterThan(0);
        expect(terminal.code).toBeLessThan(128);
        // Codex has a sentence of its own for some codes.
        expect(error).toMatch(/429|500|high demand|stream|terminated|closed|connection/i);
        expect(tries).toBeLessThan(50);
      }
    });

    test('ends at once, with everything that it started, when it is terminated', async () => {
      const mark = `31${Math.floor(Math.random() * 1e8)}`;
      // Interval and mark in one: how often a file that nobody writes to is looked at.
      const wait = `tail -f -s ${mark} /dev/null`;
      const session = await start(cli, `word-long %%shell setsid ${wait} & ${wait}%%`, {
        mcp_servers: [stdioServer('pipes')],
      });
      const watch = (async () => {
        await until(() => processesWith(mark).length === 2, session);
        const begun = Date.now();
        const answer = await rig.http.post(`/sessions/${session.id}/terminate`);
        expect(answer.status).toBe(200);
        await until(() => processesWith(mark).length === 0);
        return Date.now() - begun;
      })();
      const [took, stream] = await Promise.all([watch, session.stream()]);
      expect(stream.last).toMatchObject({ type: 'terminated' });
      expect(took).toBeLessThan(2000);
    });
  });
}

const [cli] = CLIS;
if (cli) {
  describeCli(cli, () => {
    test('goes on after its gateway has moved, and reaches the old one no more', async () => {
      const moving = await Rig.start();
      try {
        const { provider, model } = cli;
        const session = await moving.session({ provider, model }, 'word-here', {
          environment: LIMITED,
        });
        const first = await moving.finish(session);
        expect(first).toMatchObject({ terminal: { type: 'exit', code: 0 } });
        const old = moving.model.url;
        await moving.moveModel();
        expect(moving.model.url).not.toBe(old);
        const look = `for url in ${old} ${moving.model.url}; do curl -s -o /dev/null -w '<%{http_code}>' $url/x; done`;
        await moving.prompt(session, `word-there %%shell ${look}%%`);
        const second = await moving.finish(session, first.terminal.id);
        expect(second).toMatchObject({ terminal: { type: 'exit', code: 0 } });
        expect(second.output).toContain('word-here word-there');
        expect(second.output).toContain('<000><404>');
        await moving.remove(session);
      } finally {
        await moving.stop();
      }
    });
  });
}

testWith(
  ['bubblewrap'],
  'a program that cannot be installed fails its stage with the reason',
  async () => {
    const cache = await mkdtemp(join(tmpdir(), 'empty-cache-'));
    const lost = await Rig.start({ CACHE_DIR: cache, npm_config_registry: 'http://127.0.0.1:9/' });
    try {
      const session = await lost.session({ provider: 'openai', model: 'gpt-scripted' }, 'anything');
      const { events, terminal } = await lost.finish(session);
      const reason = /^@openai\/codex@[\d.]+ could not be installed: .*ECONNREFUSED/s;
      expect(events.at(-2)).toMatchObject({
        type: 'stage',
        stage: 'provision_setup',
        state: 'failed',
        message: expect.stringMatching(reason),
      });
      expect(terminal).toMatchObject({ type: 'error', message: expect.stringMatching(reason) });
      await lost.remove(session);
    } finally {
      await lost.stop();
      await rm(cache, { recursive: true });
    }
  },
);

/** OpenCode looks for the types of its plugins, whatever it is told, and does well without. */
const HARMLESS = /^registry\./;

function refusals(sessionId: string): string[] {
  const pattern = new RegExp(`Sandbox ${sessionId} was refused \\\\"([^"\\\\]+)`, 'g');
  return [...rig.service.logs().matchAll(pattern)].map(([, name = '']) => name);
}

/** Polls; fails when it takes too long, or when the session ends meanwhile. */
async function until(condition: () => boolean, session?: RunningSession): Promise<void> {
  const deadline = Date.now() + 30_000;
  while (!condition()) {
    const status = session && (await rig.http.get(`/sessions/${session.id}`)).body.status;
    if (Date.now() > deadline || status === 'failed' || status === 'completed') {
      throw new Error(`waited in vain${status === undefined ? '' : `: the session is ${status}`}`);
    }
    await delay(30);
  }
}

/** Processes of this machine, however deep in namespaces, that have the mark in their arguments as a word. */
function processesWith(mark: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
        return words[0] === 'tail' && words.includes(mark);
      } catch {
        return false;
      }
    });
}
