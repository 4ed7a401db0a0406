import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { findPlanted } from '../support/planted-secrets.js';
import { testWith } from '../support/requirements.js';
import { commandOf } from '../support/sandbox-processes.js';
import { contentsOf, killGateway } from '../support/sandbox-remains.js';
import { CLIS, describeCli, type Cli } from './support/clis.js';
import {
  brokenServer,
  HTTP_SECRET,
  httpServer,
  sseServer,
  stdioServer,
} from './support/mcp-servers.js';
import { MODEL_KEY, usedBy } from './model-endpoint/model-endpoint.js';
import { Rig, type RunningSession } from './support/rig.js';

/** A first session may have to install hundreds of megabytes. */
const INSTALL_LIMIT_MS = 300_000;
/** For long runs by hand. */
const KILL_ROUNDS = Number(process.env['KILL_ROUNDS'] ?? 1);
const LIMITED = { networking: { type: 'limited', allow_mcp_servers: true } };
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

const tokensOf = ({ requests, ...tokens }: ReturnType<typeof usedBy>): number =>
  requests && Object.values(tokens).reduce((sum, count) => sum + count, 0);

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
        const refused = () => refusals(session.id).filter((name) => !HARMLESS.test(name));
        await poll(() => refused().length > 0);
        expect(new Set(refused())).toEqual(new Set(['elsewhere.example']));
      },
      INSTALL_LIMIT_MS,
    );

    test(
      'has the usage that the model counts, with a tool and a resumed turn',
      async () => {
        // Requests of earlier sessions have ended with their sandboxes.
        const before = rig.model.requests.length;
        const known = await rig.reportedTokens(cli.provider);
        const session = await start(cli, 'word-usage %%shell echo counted%%');
        const first = await rig.finish(session);
        const counted = usedBy(rig.model.requests.slice(before));
        expect(counted.requests).toBeGreaterThan(1);
        expect((await rig.http.get(`/sessions/${session.id}`)).body).toMatchObject({
          usage: counted,
        });
        await rig.prompt(session, 'word-again %%shell echo counted again%%');
        expect((await rig.finish(session, first.terminal.id)).terminal).toMatchObject({ code: 0 });
        expect((await rig.http.get(`/sessions/${session.id}`)).body).toMatchObject({
          usage: usedBy(rig.model.requests.slice(before)),
        });
        const tokens = tokensOf(counted) + tokensOf(usedBy(rig.model.requests.slice(before)));
        // Some programs report what the whole session has used.
        const again = ['anthropic', 'openai'].includes(cli.provider) ? 0 : tokensOf(counted);
        let seen = known;
        const all = () => seen.reported - known.reported + seen.onlyGateway - known.onlyGateway;
        await poll(async () => {
          seen = await rig.reportedTokens(cli.provider);
          return all() >= tokens - again;
        });
        expect(all()).toBe(tokens - again);
        expect(seen.onlyProgram).toBe(known.onlyProgram);
        expect(seen.reported).toBeGreaterThan(known.reported);
        // OpenCode does not report the request for a title.
        if (cli.provider !== 'opencode') expect(seen.onlyGateway).toBe(known.onlyGateway);
      },
      INSTALL_LIMIT_MS,
    );

    test('fails readably when its key is refused', async () => {
      const session = await start(cli, 'word-refused %%fault 401%%');
      const { terminal, output } = await rig.finish(session);
      expect(terminal).toMatchObject({ type: 'exit', code: expect.any(Number) });
      expect(terminal.code).toBeGreaterThan(0);
      expect(terminal.code).toBeLessThan(128);
      expect(output).toMatch(/scripted failure 401|401/);
      const { body } = await rig.http.get(`/sessions/${session.id}`);
      expect(body).toMatchObject({ status: 'failed', exit_code: terminal.code });
      expect(body['error']).toMatch(/401/);
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

    testWith(
      ['root'],
      'has no key, token or secret header in its sandbox',
      async () => {
        const session = await start(cli, 'word-scan %%shell echo scan now; sleep 8%%', {
          mcp_servers: [httpServer('wires', rig.model.url)],
        });
        const stream = session.stream();
        let inside = await contentsOf(rig.service);
        await until(async () => {
          inside = await contentsOf(rig.service);
          return inside.pids.some((pid) => commandOf(pid) === 'sleep 8 ');
        }, session);
        const { found, processes } = findPlanted(inside, [MODEL_KEY, HTTP_SECRET]);
        expect(found).toEqual([]);
        expect(processes.length).toBeGreaterThan(2);
        expect(findPlanted(inside, ['scan now']).found.join('\n')).toMatch(/memory of/);
        expect((await stream).last).toMatchObject({ type: 'exit', code: 0 });
      },
      INSTALL_LIMIT_MS,
    );

    test('ends with everything that it started when it is terminated', async () => {
      const mark = `31${Math.floor(Math.random() * 1e8)}`;
      // Interval and mark in one: how often a file that nobody writes to is looked at.
      const wait = `tail -f -s ${mark} /dev/null`;
      const session = await start(cli, `word-long %%shell setsid ${wait} & ${wait}%%`, {
        mcp_servers: [stdioServer('pipes')],
      });
      const watch = (async () => {
        await until(() => processesWith(mark).length === 2, session);
        const answer = await rig.http.post(`/sessions/${session.id}/terminate`);
        expect(answer.status).toBe(200);
        await until(() => processesWith(mark).length === 0);
      })();
      const [, stream] = await Promise.all([watch, session.stream()]);
      expect(stream.last).toMatchObject({ type: 'terminated' });
    });
  });
}

const [cli] = CLIS;
if (cli) {
  describeCli(cli, () => {
    test.each([
      ['service during a response', '%%fault slow%% %%shell echo still there%%'],
      ['gateway between two responses', '%%shell sleep 2; echo still there%%'],
    ])(
      'completes its turn when somebody kills the %s',
      async (victim, directives) => {
        const own = await Rig.start();
        try {
          for (let round = 0; round < KILL_ROUNDS; round += 1) {
            const { provider, model } = cli;
            const word = `word-round${round}`;
            const session = await own.session({ provider, model }, `${word} ${directives}`);
            const first = () =>
              own.model.requests.find(({ text }) => text.includes(word) && text.includes('%%'));
            if (victim.startsWith('service')) {
              await poll(() => first() !== undefined);
              await own.service.kill9();
              expect(first()?.isAnswered).toBe(false);
              // The response goes on although there is no service.
              await poll(() => first()?.isAnswered === true);
              await own.restart();
            } else {
              await poll(() => first()?.isAnswered === true);
              await killGateway(own.service);
            }
            const { terminal, output } = await own.finish(session);
            expect([round, terminal]).toMatchObject([round, { type: 'exit', code: 0 }]);
            expect(output).toContain('still there');
            await own.remove(session);
          }
        } finally {
          await own.stop();
        }
      },
      KILL_ROUNDS * INSTALL_LIMIT_MS,
    );

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
        // Only the gateway reaches either of them.
        expect(second.output).toContain('<000><000>');
        await moving.remove(session);
      } finally {
        await moving.stop();
      }
    });
  });
}

testWith(
  ['sandboxes on this host'],
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

/** Polls; fails when it takes too long. */
async function poll(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 200_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error('waited in vain');
    await delay(20);
  }
}

/** Polls; fails when it takes too long, or when the session ends meanwhile. */
async function until(
  condition: () => boolean | Promise<boolean>,
  session?: RunningSession,
): Promise<void> {
  const deadline = Date.now() + 200_000;
  while (!(await condition())) {
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
