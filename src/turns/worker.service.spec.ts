import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import type { AppConfig } from '../config/app-config.js';
import type { ClaimedTurn, ClaimRequest, LeaseRenewal } from './turn-queue.repository.js';
import { SandboxesInUse } from '../sandboxes/lifecycle/sandboxes-in-use.js';
import { Worker } from './worker.service.js';

const turn = (id: string, claims: number): ClaimedTurn =>
  ({ id, claims, user_id: 'user', session_id: `session of ${id}`, progress: {} }) as ClaimedTurn;

/** The queue, as far as one worker sees it. Nothing of its turns is ever written. */
class Queue {
  waiting: ClaimedTurn[] = [];
  claims: ClaimRequest[] = [];
  harmless: string[] = [];

  async claim(request: ClaimRequest): Promise<ClaimedTurn[]> {
    this.claims.push(request);
    return this.waiting.splice(0);
  }
  async held(_owner: string, ids: readonly string[]): Promise<string[]> {
    return [...ids];
  }
  async renew(
    _owner: string,
    ids: readonly string[],
    _seconds: number,
    harmless: readonly string[],
  ): Promise<LeaseRenewal[]> {
    this.harmless = [...harmless];
    return ids.map((id) => ({ id, renewed: true }));
  }
  async leased(): Promise<string[]> {
    return [];
  }
  async callWorkers(): Promise<void> {}
}

let queue: Queue;
let worker: Worker;
let now: number;
/** What each turn has committed, in the order in which they were claimed. */
let logs: { committedRows: number }[];
let unplanned: PromiseWithResolvers<never>;

beforeEach(() => {
  jest.spyOn(Logger.prototype, 'error').mockImplementation(() => undefined);
  queue = new Queue();
  now = 0;
  logs = [];
  unplanned = Promise.withResolvers();
  const open = () => logs[logs.push({ committedRows: 0 }) - 1];
  const writer = { open, close: async () => undefined };
  const clock = { now: () => now, monotonic: () => now };
  const driver = { name: 'local' };
  const metrics = { claimed: () => undefined };
  const shared = {
    planner: { plan: () => unplanned.promise },
    grants: { issue: () => ({ env: {} }) },
    driver,
    writer,
    clock,
    metrics,
    failures: {},
    output: {},
    endedTurns: {},
    tracing: {},
    usage: { flush: async () => undefined, release: () => undefined },
    usageComparison: { compare: async () => undefined },
    changes: { keep: async () => undefined },
    builds: { during: async () => undefined },
    warm: {},
  };
  const parts = [
    queue,
    {},
    shared,
    { beat: async () => undefined, stopped: async () => undefined },
    writer,
    { on: () => () => undefined },
    {
      databaseUrl: 'elsewhere',
      leaseSeconds: 0.2,
      hostLostSeconds: 10,
      workerConcurrency: 4,
    } as AppConfig,
    clock,
    { name: 'here' },
    driver,
    metrics,
    {},
    new SandboxesInUse(),
    { run: async () => undefined },
    { url: null },
    { check: async () => undefined },
    { gauge: () => undefined },
  ];
  worker = new Worker(...(parts as unknown as ConstructorParameters<typeof Worker>));
  worker.onApplicationBootstrap();
});
afterEach(async () => {
  const stopped = worker.beforeApplicationShutdown();
  unplanned.reject(new Error('the service stops'));
  await stopped;
  jest.restoreAllMocks();
});

/** What the worker asks for from now on. */
async function nextClaim(): Promise<ClaimRequest | undefined> {
  const seen = queue.claims.length;
  // The one that is under way may have been asked for before.
  while (queue.claims.length < seen + 2) await delay(5);
  return queue.claims.at(-1);
}

test('a turn that may have ended its last worker is the only one until it gets somewhere', async () => {
  expect(await nextClaim()).toMatchObject({ suspect: true });
  queue.waiting = [turn('new', 1)];
  expect(await nextClaim()).toMatchObject({ suspect: true, except: ['new'] });
  queue.waiting = [turn('suspect', 2)];
  expect(await nextClaim()).toMatchObject({ suspect: false, except: ['new', 'suspect'] });
  for (const log of logs) log.committedRows += 1;
  expect(await nextClaim()).toMatchObject({ suspect: true });
});

test('a turn that was held for a minute is no suspect, and its claims do not count', async () => {
  queue.waiting = [turn('suspect', 2)];
  await nextClaim();
  now = 59_000;
  expect(await nextClaim()).toMatchObject({ suspect: false });
  expect(queue.harmless).toEqual([]);
  now = 61_000;
  expect(await nextClaim()).toMatchObject({ suspect: true });
  while (queue.harmless.length === 0) await delay(5);
  expect(queue.harmless).toEqual(['suspect']);
});
