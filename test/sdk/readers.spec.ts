import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { describeWith, type Requirement } from '../support/requirements.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import type { Service } from '../support/service.js';
import { type Fault, type FlakyProxy, startFlakyProxy } from './support/flaky-proxy.js';
import { PYTHON, runProgram } from './support/program.js';

const LINES = 40;
const SCRIPT = `
for i in $(seq ${LINES}); do echo "línea $i ✓"; echo "err $i" >&2; sleep 0.02; done; exit 3`;
/** Among the stages (after `start` and three of seven), between `turn_start` and its output, and before much has come. */
const FAULTS: Fault[] = [
  { how: 'end', afterFrames: 4 },
  { how: 'cut', afterFrames: 6 },
  { how: 'refuse', status: 503 },
  { how: 'cut', afterFrames: 2 },
  { how: 'end', afterFrames: 1 },
  { how: 'refuse', status: 502 },
];

const READERS: [string, string[], Requirement[]][] = [
  ['TypeScript', [process.execPath, 'examples/events/follow-session.ts'], []],
  ['Python', [PYTHON, 'examples/events/follow_session.py'], ['python3']],
];

let service: Service;
let sessions: SessionsOf;
let proxy: FlakyProxy | undefined;
beforeAll(async () => {
  service = await startSessionService();
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await proxy?.stop();
  await leaveNothing(service, [sessions]);
  await service.stop();
});

describeWith(['bubblewrap'], 'the example readers', () => {
  for (const [name, program, requirements] of READERS) {
    describeWith(requirements, name, () => {
      const follow = async (faults: readonly Fault[], id: string, after = '0') => {
        proxy = await startFlakyProxy(service.url, faults);
        try {
          const env = { BASE_URL: proxy.url, ACCESS_TOKEN: service.token };
          return { ...(await runProgram([...program, id, after], env)), cursors: proxy.cursors };
        } finally {
          await proxy.stop();
        }
      };

      test('gets all output once and in order, whatever happens to the connection', async () => {
        const id = await sessions.create(SCRIPT);
        const { code, stdout, stderr, cursors } = await follow(FAULTS, id);
        const lines = (text: (i: number) => string) =>
          Array.from({ length: LINES }, (_, i) => text(i + 1)).join('');
        expect(stdout).toBe(lines((i) => `línea ${i} ✓\n`));
        expect(stderr).toBe(lines((i) => `err ${i}\n`));
        expect(code).toBe(3);
        expect(cursors).toHaveLength(FAULTS.length + 1);
        const { events } = await sessions.stream(id).end();
        const ids = events.filter(({ type }) => type === 'stage').map((event) => event.id);
        // It went on, and did not begin again.
        expect(cursors.slice(0, 4).map(Number)).toEqual([0, ids[2], ids[6], ids[6]]);
        expect(cursors.map(Number)).toEqual(cursors.map(Number).toSorted((a, b) => a - b));
      });

      test('reads only the next turn after the last id of the one before', async () => {
        const id = await sessions.completed('echo first');
        const { last } = await sessions.stream(id).end();
        await sessions.prompt(id, 'echo second');
        const { code, stdout } = await follow([{ how: 'cut', afterFrames: 2 }], id, `${last.id}`);
        expect([code, stdout]).toEqual([0, 'second\n']);
      });

      test('tells how a session ended that has no exit code', async () => {
        const id = await sessions.create('sleep 60', { timeout: 1 });
        const { code, stderr } = await follow([], id);
        expect(code).toBe(1);
        expect(stderr).toMatch(/^\[error\] /);
      });

      test('does not try again what is refused', async () => {
        const { code, stderr, cursors } = await follow([], '00000000-0000-4000-8000-000000000000');
        expect(code).toBe(1);
        expect(stderr).toContain('404 {"detail":"Session not found"}');
        expect(cursors).toHaveLength(1);
      });
    });
  }
});
