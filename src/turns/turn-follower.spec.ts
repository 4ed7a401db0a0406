import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { Notifier } from '../event-log/log-notifications.js';
import type { SpoolChunk, SpoolExit } from '../sandboxes/driver/sandbox-driver.js';
import { OutcomeTracker } from './output-decoder.js';
import { OutputWriter } from './output-writer.js';
import { TurnJournal } from './turn-journal.js';
import { Redactor } from './redaction/redactor.js';
import { followTurn } from './turn-follower.js';
import type { TurnCommit, TurnOutputRepository } from './turn-output.repository.js';
import type { ClaimedTurn } from './turn-queue.repository.js';
import type { TurnWork } from './turn-work.js';

const CHUNKS = 2_000;
const EXIT = { kind: 'exit', reason: 'exited', exitCode: 0 } as unknown as SpoolExit;
const redactor = Redactor.of([]);

/** A spool that is there already, in pieces of two bytes of one line that never ends. */
async function* spool(onChunk: () => void): AsyncGenerator<SpoolChunk | SpoolExit> {
  for (let at = 0; at < CHUNKS; at += 1) {
    onChunk();
    const [offset, nextOffset] = [at * 10, at * 10 + 10];
    yield { kind: 'chunk', stream: 'stdout', data: Buffer.from('ab'), offset, nextOffset };
  }
  yield EXIT;
}

let commits: TurnCommit[];
/** How often the event loop has come round. */
let rounds = 0;
let counting: NodeJS.Immediate;

beforeEach(() => {
  commits = [];
  const count = (): void => {
    rounds += 1;
    counting = setImmediate(count);
  };
  count();
});
afterEach(() => {
  clearImmediate(counting);
  jest.restoreAllMocks();
});

interface Surroundings {
  events: () => AsyncGenerator<SpoolChunk | SpoolExit>;
  monotonic?: () => number;
  /** Milliseconds; the deadline is at 60,000. */
  now?: number;
  kill?: (launch: { sandboxId: string; launchId: string }) => Promise<void>;
}

/** Follows a turn until its output is written. */
async function followTo(surroundings: Surroundings) {
  const { events, monotonic = () => 0, now = 0, kill } = surroundings;
  const repository = {
    commit: async (some: readonly TurnCommit[]) => {
      commits.push(...some);
      return some.map(() => 'committed');
    },
  };
  const writer = new OutputWriter(
    repository as unknown as TurnOutputRepository,
    { emit: () => undefined } as unknown as Notifier,
  );
  const turn = {
    id: 'turn',
    session_id: 'session',
    turn_number: 1,
    fencing: 1,
    commit_seq: 0,
    last_log_id: 0,
    spool_offset: 0,
    spool_stdout: 0,
    spool_stderr: 0,
    has_output: true,
    timeout: 60,
    progress: {},
  } as ClaimedTurn;
  const work = {
    parts: { driver: { follow: events }, clock: { now: () => now, monotonic } },
    turn,
    sandbox: { kill },
    journal: new TurnJournal(writer, turn, () => undefined),
    signal: new AbortController().signal,
    deadline: 60_000,
  } as unknown as TurnWork;
  const outcome = new OutcomeTracker({ judge: () => undefined }, redactor);
  expect(await followTurn(work, 'sandbox', redactor, outcome)).toEqual(EXIT);
  await work.journal.flush();
}

/** @param monotonic what the clock says each time that it is asked. */
async function follow(onChunk: () => void, monotonic: () => number): Promise<void> {
  await followTo({ events: () => spool(onChunk), monotonic });
  expect(commits.at(-1)?.progress.outcome?.partial).toBe('ab'.repeat(CHUNKS));
}

test.each([
  ['so many chunks', () => 0, 256],
  [
    'so long',
    (
      (now) => () =>
        (now += 1)
    )(0),
    5,
  ],
])(
  'what is there already is taken in pieces: after %s others have their turn',
  async (...[, monotonic, most]) => {
    let round = rounds;
    let together = 0;
    let longest = 0;
    await follow(() => {
      together = rounds === round ? together + 1 : 1;
      round = rounds;
      longest = Math.max(longest, together);
    }, monotonic);
    expect(longest).toBeGreaterThan(1);
    expect(longest).toBeLessThanOrEqual(most);
  },
);

test('what a line says that never ends is put together once for each commit', async () => {
  const state = jest.spyOn(OutcomeTracker.prototype, 'state');
  await follow(
    () => undefined,
    () => 0,
  );
  expect(commits.length).toBeLessThan(CHUNKS / 100);
  expect(state).toHaveBeenCalledTimes(commits.length);
});

test('a runtime that its supervisor lets run past the deadline is killed', async () => {
  const killed: object[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  await followTo({
    now: 70_000,
    events: async function* () {
      await promise;
      yield EXIT;
    },
    kill: async (launch) => {
      killed.push(launch);
      resolve();
    },
  });
  expect(killed).toEqual([expect.objectContaining({ sandboxId: 'sandbox', launchId: 'turn' })]);
});
