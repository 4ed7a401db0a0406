import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Logger } from '@nestjs/common';
import type { Notifier } from '../event-log/log-notifications.js';
import { LogKind, type NewLogRow } from '../event-log/event-log.repository.js';
import { Draining, LeaseLost, TurnRefused } from './interruptions.js';
import { OutputWriter } from './output-writer.js';
import type { TurnLog } from './turn-log.js';
import type { CommitOutcome, TurnCommit, TurnOutputRepository } from './turn-output.repository.js';

const refusal = (code: string): Error =>
  Object.assign(new Error(code), { code, severity: 'ERROR' });
const text = (data: string): NewLogRow => ({ kind: LogKind.stdout, data });
const AT = { offset: 1, stdout: 0, stderr: 0 };

/** A database that accepts everything except what `trouble` rejects. */
class Database {
  /** The committed text of each turn. */
  readonly logs = new Map<string, string>();
  readonly commits: TurnCommit[] = [];
  /** Called for each turn of a statement: throws, waits, or returns the outcome of the turn's part. */
  trouble: (turnId: string) => CommitOutcome | void | Promise<void> = () => undefined;
  tries = 0;

  async commit(commits: readonly TurnCommit[]): Promise<CommitOutcome[]> {
    this.tries += 1;
    const outcomes: CommitOutcome[] = [];
    for (const { turnId } of commits) {
      const outcome = await this.trouble(turnId);
      outcomes.push(outcome ?? 'committed');
    }
    for (const [index, commit] of commits.entries()) {
      if (outcomes[index] !== 'committed') continue;
      this.commits.push(commit);
      const rows = commit.rows.map(({ data }) => data).join('');
      this.logs.set(commit.turnId, (this.logs.get(commit.turnId) ?? '') + rows);
    }
    return outcomes;
  }

  outputOf(turnId: string): string {
    const found = (this.logs.get(turnId) ?? '').matchAll(/"data":"([^"]*)"/g);
    return [...found].map(([, data]) => data).join('');
  }
}

let database: Database;
let writer: OutputWriter;
let emit: jest.Mock;

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask'] });
  jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
  jest.spyOn(Logger.prototype, 'error').mockImplementation(() => undefined);
  database = new Database();
  emit = jest.fn();
  writer = new OutputWriter(
    database as unknown as TurnOutputRepository,
    { emit } as unknown as Notifier,
  );
});
afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

const open = (id: string): TurnLog =>
  writer.open({
    id,
    session_id: `session of ${id}`,
    turn_number: 1,
    fencing: 1,
    commit_seq: 0,
    last_log_id: 0,
  });
const write = (log: TurnLog, data: string): Promise<void> => {
  const written = log.write([text(data)], AT, () => ({}));
  written.catch(() => undefined);
  return written;
};
/** Advances the time and lets the effects happen. */
async function pass(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 50) {
    for (let round = 0; round < 5; round += 1) await new Promise((done) => setImmediate(done));
    await jest.advanceTimersByTimeAsync(50);
  }
}

describe('an error that all turns get', () => {
  test.each([
    ['42501', 'a missing right'],
    ['23514', 'a day without a partition'],
    ['54000', 'a limit of the server'],
    ['22P05', 'a value'],
  ])('with %s (%s) for a while fails none and loses nothing', async (code) => {
    const logs = ['a', 'b', 'c'].map(open);
    database.trouble = () => {
      throw refusal(code);
    };
    const written = logs.map((log) => write(log, 'one '));
    await pass(20_000);
    for (const log of logs) written.push(write(log, 'two'));
    await pass(20_000);
    database.trouble = () => undefined;
    await pass(5_000);
    await Promise.all(written);
    for (const id of ['a', 'b', 'c']) expect(database.outputOf(id)).toBe('one two');
  });

  test('is their fault once another turn is written', async () => {
    const [bad, worse] = [open('bad'), open('worse')];
    database.trouble = (id) => {
      if (id !== 'good') throw refusal('22P05');
    };
    const written = [write(bad, 'x'), write(worse, 'x')];
    await pass(2_000);
    await write(open('good'), 'x');
    await pass(2_000);
    for (const each of written) await expect(each).rejects.toThrow(TurnRefused);
  });

  test('is their fault when nothing else helps for minutes', async () => {
    database.trouble = () => {
      throw refusal('22P05');
    };
    const written = ['a', 'b'].map((id) => write(open(id), 'x'));
    await pass(100);
    await jest.advanceTimersByTimeAsync(400_000);
    for (const each of written) await expect(each).rejects.toThrow(TurnRefused);
  });

  test('is nobody’s fault where somebody can repair it, though others are written', async () => {
    database.trouble = (id) => {
      if (id === 'a') throw refusal('42501');
    };
    const written = write(open('a'), 'one');
    for (let line = 0; line < 5; line += 1)
      await Promise.all([write(open(`${line}`), 'x'), pass(2_000)]);
    database.trouble = () => undefined;
    await pass(5_000);
    await written;
    expect(database.outputOf('a')).toBe('one');
  });
});

describe('a turn that cannot be written now', () => {
  test('because it is locked delays no other, and is written later', async () => {
    const [stuck, victim] = [open('stuck'), open('victim')];
    database.trouble = (id) => (id === 'stuck' ? 'locked' : undefined);
    const written = write(stuck, 'one ');
    for (let line = 0; line < 5; line += 1) {
      await Promise.all([write(victim, `${line}`), pass(100)]);
      void write(stuck, '.');
    }
    expect(database.outputOf('victim')).toBe('01234');
    database.trouble = () => undefined;
    await pass(5_000);
    await written;
    expect(database.outputOf('stuck')).toBe('one .....');
  });

  test('because its statement takes too long is separated from the others', async () => {
    const [stuck, victim] = [open('stuck'), open('victim')];
    database.trouble = (id) => {
      if (id === 'stuck') throw refusal('57014');
    };
    const written = [write(stuck, 'one '), write(victim, 'one ')];
    await pass(1_000);
    await written[1];
    for (let line = 0; line < 5; line += 1)
      await Promise.all([write(victim, `${line}`), pass(100)]);
    expect(database.outputOf('victim')).toBe('one 01234');
    database.trouble = () => undefined;
    await pass(5_000);
    await written[0];
    expect(database.outputOf('stuck')).toBe('one ');
  });

  test('is given up when the lease is lost, and when the process stops', async () => {
    const [lost, stopped] = [open('lost'), open('stopped')];
    database.trouble = () => 'locked';
    const written = [write(lost, 'x'), write(stopped, 'x')];
    await pass(1_000);
    database.trouble = (id) => (id === 'lost' ? 'lost' : 'locked');
    await pass(2_000);
    await expect(written[0]).rejects.toThrow(LeaseLost);
    await writer.close();
    await expect(written[1]).rejects.toThrow(Draining);
  });
});

describe('small writes', () => {
  test('that wait together become one event, and read the progress once', async () => {
    const log = open('a');
    const progress = jest.fn(() => ({}));
    const gate = Promise.withResolvers<void>();
    database.trouble = () => gate.promise;
    void log.write([text('first')], AT, progress);
    await pass(50);
    for (let count = 0; count < 1_000; count += 1) {
      void log.write([text('ab')], { ...AT, offset: 2 + count }, progress);
    }
    const last = log.write(
      [{ kind: LogKind.stderr, data: 'end' }],
      { ...AT, offset: 9_999 },
      progress,
    );
    expect(log.pendingBytes).toBeLessThan(3_000);
    gate.resolve();
    await last;
    expect(progress).toHaveBeenCalledTimes(2);
    expect(log.pendingBytes).toBe(0);
    expect(database.commits.at(-1)).toMatchObject({ lastId: 3, position: { offset: 9_999 } });
    expect(database.outputOf('a')).toBe(`first${'ab'.repeat(1_000)}end`);
  });

  test('become no event that is long', async () => {
    const log = open('a');
    const written = Array.from({ length: 10 }, () => write(log, 'x'.repeat(1_000)));
    await Promise.all(written);
    const events = database.logs.get('a') ?? '';
    const lengths = [...events.matchAll(/"data":"([^"]*)"/g)].map(([, data = '']) => data.length);
    expect(lengths).toEqual([4_000, 4_000, 2_000]);
  });

  test('that cannot be joined count with their size in the log', () => {
    const log = open('a');
    for (let count = 0; count < 100; count += 1) {
      const kind = count % 2 === 0 ? LogKind.stdout : LogKind.stderr;
      log.write([{ kind, data: 'x' }], AT, () => ({})).catch(() => undefined);
    }
    expect(log.pendingBytes).toBeGreaterThan(100 * 100);
  });
});

describe('an error of this process', () => {
  test('in a reader does not stop the writer', async () => {
    emit.mockImplementation(() => {
      throw new Error('reader');
    });
    const log = open('a');
    await write(log, 'one ');
    await write(log, 'two');
    expect(database.outputOf('a')).toBe('one two');
  });

  test('in the preparation of a part ends only that turn', async () => {
    const bad = open('bad').write([text('x')], AT, () => {
      throw new RangeError('Invalid string length');
    });
    const good = write(open('good'), 'x');
    await expect(bad).rejects.toThrow(TurnRefused);
    await good;
    await write(open('later'), 'x');
  });
});

test('a turn with little output does not wait for one with much', async () => {
  const committing = Promise.withResolvers<void>();
  database.trouble = (turnId) => (turnId === 'large' ? committing.promise : undefined);
  const large = write(open('large'), 'x'.repeat(1_000_000));
  const small = open('small');
  await pass(50);
  for (const line of ['a', 'b', 'c']) await write(small, line);
  expect(database.outputOf('small')).toBe('abc');
  expect(database.outputOf('large')).toBe('');
  committing.resolve();
  await large;
  expect(database.outputOf('large')).toHaveLength(1_000_000);
});

test('output that grows while others are committed is not forgotten', async () => {
  const committing = Promise.withResolvers<void>();
  database.trouble = (turnId) => (turnId === 'first' ? committing.promise : undefined);
  void write(open('first'), 'x');
  await pass(50);
  const growing = open('growing');
  void write(growing, 'y');
  const written = write(growing, 'z'.repeat(1_000_000));
  await written;
  expect(database.outputOf('growing')).toHaveLength(1_000_001);
  committing.resolve();
});
