import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { quote } from '../../src/common/shell-quote.js';
import type { EventStreamClient } from '../support/event-stream-client.js';
import type { Service } from '../support/service.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const OUTPUT_LIMIT = 48 * 2 ** 20;

let service: Service;
let sessions: SessionsOf;
beforeAll(async () => {
  service = await startSessionService({ OUTPUT_LIMIT: String(OUTPUT_LIMIT) });
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
});

/** Runs a script, and makes sure that a replay has the same frames and no chunk is too large. */
async function run(script: string, members: object = {}): Promise<EventStreamClient> {
  const live = await sessions.run(script, members);
  const replayed = await sessions.stream(live.events[0]?.session_id ?? '').end();
  expect(replayed.frames.length).toBe(live.frames.length);
  expect(sha(replayed.frames.join())).toBe(sha(live.frames.join()));
  for (const { type, data } of live.events) {
    if (type === 'output') expect(Buffer.byteLength(data)).toBeLessThanOrEqual(65_536);
  }
  return live;
}
const sha = (text: string) => createHash('sha256').update(text).digest('hex');

describe('text', () => {
  it('keeps characters whole that are written in pieces', async () => {
    const { events } = await run(
      `for byte in '\\xf0' '\\x9f' '\\x98' '\\x80' '\\xe2' '\\x82' '\\xac'; do printf "$byte"; sleep 0.1; done; printf '\\xc3' >&2; sleep 0.1; printf '\\xa9' >&2`,
    );
    const output = events.filter(({ type }) => type === 'output');
    expect(output.map(({ stream, data }) => [stream, data])).toEqual([
      ['stdout', '😀'],
      ['stdout', '€'],
      ['stderr', 'é'],
    ]);
  });

  it('makes U+FFFD of what is not UTF-8, and of NUL', async () => {
    const stream = await run(`printf 'a\\xffb\\x00c\\xed\\xa0\\x80d\\xc3'`);
    expect(stream.output()).toMatch(/^a\uFFFDb\uFFFDc\uFFFD+d\uFFFD$/u);
  });

  it('keeps control characters, separators and what looks like a frame', async () => {
    const text = 'a\r\nb\u2028c\u0085\u001b[1m\n\nid: 7\ndata: {"type":"exit"}\n\n: x\n\n\u{FEFF}z';
    const stream = await run(`printf %s ${quote(text)}`);
    expect(stream.output()).toBe(text);
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
  });

  it('needs no newline, and no output', async () => {
    expect((await run('printf x')).output()).toBe('x');
    const silent = await run('exit 0');
    expect(silent.events.some(({ type }) => type === 'turn_start')).toBe(false);
    expect(silent.last).toMatchObject({ type: 'exit', code: 0 });
  });

  it('goes on when stdout is closed', async () => {
    const stream = await run('echo out; exec 1>&-; echo err >&2; sleep 0.3; echo more >&2; exit 4');
    expect([stream.output('stdout'), stream.output('stderr')]).toEqual(['out\n', 'err\nmore\n']);
    expect(stream.last).toMatchObject({ type: 'exit', code: 4 });
  });

  it('keeps what was written in turns in order', async () => {
    const { events } = await run(
      'for i in 1 2 3; do echo o$i; sleep 0.15; echo e$i >&2; sleep 0.15; done',
    );
    const output = events.filter(({ type }) => type === 'output');
    expect(output.map(({ stream, data }) => `${stream} ${data.trim()}`)).toEqual(
      ['1', '2', '3'].flatMap((i) => [`stdout o${i}`, `stderr e${i}`]),
    );
  });

  it('is the exit code’s that a signal makes', async () => {
    expect((await run('kill -9 $$')).last).toMatchObject({ type: 'exit', code: 137 });
    expect((await run('nonsense-command')).last).toMatchObject({ type: 'exit', code: 127 });
  });
});

describe('much of it', () => {
  it('3 MB without a newline', async () => {
    const stream = await run('head -c 3000000 /dev/zero | tr "\\0" y');
    expect(stream.output()).toBe('y'.repeat(3_000_000));
  });

  it('20 MB on both streams, whole and in order', async () => {
    const stream = await run(`seq 1 1400000 & seq 1 1400000 >&2; wait`);
    const expected = sha(Array.from({ length: 1_400_000 }, (_, i) => `${i + 1}\n`).join(''));
    expect(sha(stream.output('stdout'))).toBe(expected);
    expect(sha(stream.output('stderr'))).toBe(expected);
  });

  it('more than the limit ends the turn', async () => {
    const stream = await run('yes "a line of a flood"');
    expect(stream.last).toMatchObject({ type: 'error', message: expect.stringContaining('limit') });
    const size = Buffer.byteLength(stream.output());
    expect(size).toBeGreaterThan(OUTPUT_LIMIT * 0.9);
    expect(size).toBeLessThanOrEqual(OUTPUT_LIMIT);
  });
});

describe('secrets', () => {
  const secret = 'pl4nted-sécret "quoted" \\ value';

  it('of the environment are replaced, however they are cut', async () => {
    const environment_id = await sessions.createEnvironment({
      env_vars: { SECRET: secret, SHORT: 'abc' },
    });
    const stream = await run(
      `echo "before $SECRET after $SHORT"
       for ((i = 0; i < \${#SECRET}; i++)); do printf %s "\${SECRET:i:1}"; sleep 0.02; done; echo
       printf '%s' "$SECRET" >&2
       (head -c 65530 /dev/zero | tr '\\0' z; printf %s "$SECRET$SECRET")
       printf %s "\${SECRET:0:9}"`,
      { environment_id },
    );
    expect(stream.output('stderr')).toBe('[redacted]');
    expect(stream.output('stdout')).toBe(
      `before [redacted] after abc\n[redacted]\n${'z'.repeat(65_530)}[redacted][redacted]${secret.slice(0, 9)}`,
    );
  });

  it('of tool servers, too', async () => {
    const agent_id = await sessions.createAgent({
      mcp_servers: [
        { type: 'stdio', name: 'a', command: 'x', env: { KEY: 'mcp-env-secret-1' } },
        {
          type: 'http',
          name: 'b',
          url: 'https://mcp.example.com',
          headers: { X: 'mcp-header-secret' },
        },
      ],
    });
    const stream = await run('cat ~/.mcp.json', { agent_id });
    expect(stream.output()).toContain('"X-Session-Grant": "${SESSION_GRANT_MCP_0}"');
    expect(stream.output()).not.toMatch(/mcp-(env|header)-secret/);
  });
});
