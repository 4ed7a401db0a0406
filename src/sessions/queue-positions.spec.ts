import { describe, expect, it } from '@jest/globals';
import { describeWait, type WaitingTurn } from './queue-positions.repository.js';

const TURN: WaitingTurn = {
  sessionId: 's',
  begun: false,
  place: 3,
  workers: 2,
  reachable: 2,
  slots: 20,
  taken: 20,
};

describe('what a turn waits for', () => {
  it.each([
    [{}, 'Waiting for a free slot (20 of 20 in use): number 3 in the queue'],
    [{ place: null }, 'Waiting for a free slot (20 of 20 in use): behind 1000 others in the queue'],
    [{ taken: 19 }, 'Waiting for a worker: number 3 in the queue'],
    [{ slots: null }, 'Waiting for a worker: number 3 in the queue'],
    [{ workers: 0, reachable: 0 }, 'Waiting for a worker: none is running'],
    [{ reachable: 0 }, "Waiting for the worker that has the session's sandbox: it is not running"],
    [
      { begun: true, place: null },
      'Waiting for a worker to continue the turn: its last worker has stopped',
    ],
  ])('%j: %s', (members, sentence) => {
    expect(describeWait({ ...TURN, ...members })).toBe(sentence);
  });
});
