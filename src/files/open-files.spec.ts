import { expect, it } from '@jest/globals';
import { OpenFiles } from './open-files.js';

it('reports the limit of one user as theirs', () => {
  const files = new OpenFiles();
  const ends = Array.from({ length: 16 }, () => files.begin('alice'));
  expect(() => files.begin('alice')).toThrow(/^Concurrent file access limit reached \(16 of 16/);
  ends[0]?.();
  files.begin('alice');
});

it('reports the limit of all users as the limit of all users', () => {
  const files = new OpenFiles();
  for (let user = 0; user < 8; user += 1) {
    for (let open = 0; open < 16; open += 1) files.begin(`user ${user}`);
  }
  expect(() => files.begin('somebody who has none')).toThrow(/all users together/);
});
