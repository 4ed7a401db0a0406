import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Logger } from '@nestjs/common';
import { Outage } from './sql.js';

const AWAY = Object.assign(new Error('connect ECONNREFUSED'), {
  code: 'ECONNREFUSED',
  syscall: 'connect',
});

describe('an outage of the database', () => {
  const said: string[] = [];
  beforeEach(() => {
    said.length = 0;
    const note = (message: unknown): void => void said.push(String(message).split(/[:,]/)[0] ?? '');
    jest.spyOn(Logger.prototype, 'warn').mockImplementation(note);
    jest.spyOn(Logger.prototype, 'log').mockImplementation(note);
  });
  afterEach(() => {
    jest.restoreAllMocks();
  });

  const fail = (outage: Outage, error: Error) =>
    expect(outage.watch(() => Promise.reject(error))).rejects.toBe(error);
  const answer = (outage: Outage) => outage.watch(async () => 1);
  const GONE = 'The database is unavailable';
  const BACK = 'The database is available again';

  test('is told once when it begins and once when it ends', async () => {
    const outage = new Outage();
    await answer(outage);
    for (let count = 0; count < 3; count += 1) await fail(outage, AWAY);
    expect([outage.isOver, said]).toEqual([false, [GONE]]);
    await answer(outage);
    await answer(outage);
    expect([outage.isOver, said]).toEqual([true, [GONE, BACK]]);
    await fail(outage, AWAY);
    expect(said).toEqual([GONE, BACK, GONE]);
  });

  test('is no outage when a statement is wrong', async () => {
    const outage = new Outage();
    await fail(outage, new Error('syntax error'));
    expect([outage.isOver, said]).toEqual([true, []]);
  });

  test('begins and ends by what was asked since, not by what was under way', async () => {
    const outage = new Outage();
    const slowAnswer = Promise.withResolvers<number>();
    const slowFailure = Promise.withResolvers<number>();
    const answered = outage.watch(() => slowAnswer.promise);
    await fail(outage, AWAY);
    slowAnswer.resolve(1);
    await answered;
    expect(outage.isOver).toBe(false);
    const failed = outage.watch(() => slowFailure.promise);
    await answer(outage);
    slowFailure.reject(AWAY);
    await expect(failed).rejects.toBe(AWAY);
    expect([outage.isOver, said]).toEqual([true, [GONE, BACK]]);
  });
});
