import { expect } from '@jest/globals';
import { type GitServer, startGitServer } from '../../support/git-server.js';
import { SessionsOf, startSessionService } from '../../support/sessions.js';
import type { Service } from '../../support/service.js';
import { type Fault, startFlakyProxy } from './flaky-proxy.js';
import { runProgram } from './program.js';

/** For each of the first streams of a tour: two among the seven stages, a proxy without upstream, one in the output. */
const FAULTS: Fault[] = [
  { how: 'end', afterFrames: 3 },
  { how: 'cut', afterFrames: 4 },
  { how: 'refuse', status: 503 },
  { how: 'cut', afterFrames: 5 },
];

const LINES = Array.from({ length: 20 }, (_, i) => `hello ${i + 1}\n`).join('');

/** What every client has to find, whatever it is written in. */
const FOUND = {
  keys: ['GREETING'],
  // Java's client sends null.
  missing: [expect.stringMatching(/^body\.name (missing|string_type)$/)],
  mismatch: expect.stringContaining('Model "gpt-5" does not match provider "shell"'),
  conflict: [409, 'Version mismatch: expected 1, got 7'],
  repeated: true,
  limit: [
    429,
    {
      detail: expect.stringContaining('Concurrent session limit reached'),
      limit: 1,
      active: 1,
    },
  ],
  outputs: [LINES, 'again\n'],
  codes: [0, 0],
  turns: [
    [1, 'completed'],
    [2, 'completed'],
  ],
  ended: [409, 'Session is already terminated'],
  files: {
    written: ['data/all bytes.bin', 4096, '0600'],
    listed: [['data/all bytes.bin', 'file', 4096]],
    whole: true,
    part: [206, true],
    archived: true,
    changes: [['app', ['README', 'modified']]],
    patched: true,
    gone: [404, 'No such file'],
  },
};

/** A service, and a server with the repository that tours change. */
export interface TourService {
  service: Service;
  git: GitServer;
  stop(): Promise<void>;
}

export async function startTourService(): Promise<TourService> {
  const git = await startGitServer('unused');
  // Sandboxes reach no loopback address of the host but a gateway's.
  const service = await startSessionService({ OPENAI_BASE_URL: git.url });
  const stop = async (): Promise<void> => {
    await service.stop();
    await git.stop();
  };
  return { service, git, stop };
}

/** Sends one of the tours in examples/sdks through the service, as a user with one session, over a connection that breaks. */
export async function expectTour(
  { service, git }: TourService,
  program: readonly string[],
): Promise<void> {
  const user = await service.createUser({ sessionLimit: 1 });
  const proxy = await startFlakyProxy(service.url, FAULTS);
  try {
    const { code, stdout, stderr } = await runProgram(program, {
      BASE_URL: proxy.url,
      ACCESS_TOKEN: user.token,
      REPOSITORY_URL: `${git.url}/public.git`,
    });
    expect([code, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toEqual(FOUND);
    // One stream for each fault, the one that came through, and the one of the second turn.
    expect(proxy.cursors).toHaveLength(FAULTS.length + 2);
    const cursors = proxy.cursors.map(Number);
    expect(cursors).toEqual(cursors.toSorted((a, b) => a - b));
    expect(cursors[1]).toBeGreaterThan(0);
  } finally {
    await proxy.stop();
    await new SessionsOf(service, user).clear();
  }
}
