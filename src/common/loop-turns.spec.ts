import { describe, expect, it } from '@jest/globals';
import { LoopTurns } from './loop-turns.js';

/** LoopTurns whose rounds the test starts one by one. */
function turnsByHand(bytesAtOnce: number) {
  const rounds: (() => void)[] = [];
  const turns = new LoopTurns(bytesAtOnce, (run) => rounds.push(run));
  const done: string[] = [];
  const add = (userId: string, name: string, bytes: number) =>
    turns.run(userId, bytes, () => done.push(name));
  const round = (): string[] => {
    rounds.shift()?.();
    return done.splice(0);
  };
  return { add, round, rounds };
}

describe('LoopTurns', () => {
  it('does no more than so many bytes in a round', async () => {
    const { add, round, rounds } = turnsByHand(100);
    const all = ['a', 'b', 'c', 'd', 'e'].map((name) => add('user', name, 40));
    expect(round()).toEqual(['a', 'b', 'c']);
    expect(round()).toEqual(['d', 'e']);
    await Promise.all(all);
    expect(rounds).toEqual([]);
  });

  it('does one piece at least, whatever its size', () => {
    const { add, round } = turnsByHand(100);
    void add('user', 'a', 1_000);
    void add('user', 'b', 1_000);
    expect(round()).toEqual(['a']);
    expect(round()).toEqual(['b']);
  });

  it('takes the users one after the other', () => {
    const { add, round } = turnsByHand(100);
    for (let count = 0; count < 50; count += 1) void add('busy', `busy ${count}`, 100);
    void add('other', 'other 0', 100);
    void add('other', 'other 1', 100);
    const order = Array.from({ length: 5 }, () => round()[0]);
    expect(order).toEqual(['busy 0', 'other 0', 'busy 1', 'other 1', 'busy 2']);
  });
});
