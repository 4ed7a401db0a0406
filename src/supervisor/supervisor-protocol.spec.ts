import { existsSync } from 'node:fs';
import { mkdtemp, mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Duplex, duplexPair } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  type Fault,
  LAUNCH,
  PIECES,
  printingSupervisor,
  REQUEST,
  take,
  transport,
} from '../../test/support/printing-supervisor.js';
import { SandboxError } from './sandbox-error.js';
import { serveSupervisor } from './serve-supervisor.js';
import { SupervisorClient } from './supervisor-client.js';

let root: string;
beforeAll(async () => {
  // In memory: records of exits are flushed, which a disk takes its time for.
  root = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'protocol-'));
});
afterAll(() => rm(root, { recursive: true, force: true }));

const EXPECTED = {
  text: PIECES.join(''),
  exit: { kind: 'exit', reason: 'exited', exitCode: 3 },
};

/** Launches and follows over a first connection that breaks, and others that do not. */
async function launchAndFollow(fault?: Fault, pieceBytes?: number) {
  const { supervisor, started } = await printingSupervisor(root);
  const opened: ReturnType<typeof transport>[] = [];
  const client = new SupervisorClient({
    connect: async () => {
      const serve = (connection: Duplex) => serveSupervisor(connection, supervisor);
      const made = transport(serve, opened.length === 0 ? fault : undefined, pieceBytes);
      opened.push(made);
      return made.connection;
    },
  });
  const { signal } = new AbortController();
  await client.launch({ launchId: LAUNCH, request: REQUEST, signal });
  await client.launch({ launchId: LAUNCH, request: REQUEST, signal });
  const got = await take(client.follow({ launchId: LAUNCH, offset: 0, signal }));
  await client.close();
  await Promise.all(opened.map(({ served }) => served));
  return { got, started, passed: opened[0]?.passed ?? { down: 0, up: 0 }, times: opened.length };
}

describe('a supervisor over a stream of bytes', () => {
  it('launches once, and gives the output and the exit', async () => {
    const { got, started, times } = await launchAndFollow();
    expect(got).toEqual(EXPECTED);
    expect(started).toEqual(['a prompt']);
    expect(times).toBe(1);
  });

  it('does so byte by byte', async () => {
    expect((await launchAndFollow(undefined, 1)).got).toEqual(EXPECTED);
  });

  it.each([
    ['down', 'cut'],
    ['down', 'truncate'],
    ['up', 'cut'],
    ['up', 'truncate'],
  ] as const)(
    'loses and repeats nothing, wherever the way %s is broken by a %s',
    async (direction, how) => {
      const { passed } = await launchAndFollow();
      const places = Array.from({ length: passed[direction] }, (_, at) => at);
      expect(places.length).toBeGreaterThan(300);
      const faults = places.map((at) => ({ direction, at, how }));
      const results = await Promise.all(faults.map((fault) => launchAndFollow(fault)));
      for (const { got, started } of results) {
        expect(got).toEqual(EXPECTED);
        expect(started).toEqual(['a prompt']);
      }
      // What breaks after the last event was taken is not noticed.
      const unbroken = results.filter(({ times }) => times === 1);
      expect(unbroken.length).toBeLessThan(results.length / 5);
      expect(Math.max(...results.map(({ times }) => times))).toBe(2);
    },
  );

  it('gives more than may be under way at a time', async () => {
    const pieces = Array.from({ length: 40 }, (_, at) => `${at}${'x'.repeat(60_000)}\n`);
    const { supervisor } = await printingSupervisor(root, pieces);
    const client = new SupervisorClient({
      connect: async () => transport((one) => serveSupervisor(one, supervisor)).connection,
    });
    const { signal } = new AbortController();
    await client.launch({ launchId: LAUNCH, request: REQUEST, signal });
    const { text } = await take(client.follow({ launchId: LAUNCH, offset: 0, signal }));
    expect(text === pieces.join('')).toBe(true);
    await client.close();
  });

  it('says that a launch is lost which never was, and that nothing may start it later', async () => {
    const { supervisor, started, folder } = await printingSupervisor(root);
    await mkdir(folder.path);
    const client = new SupervisorClient({
      connect: async () => transport((one) => serveSupervisor(one, supervisor)).connection,
    });
    const { signal } = new AbortController();
    const { exit } = await take(client.follow({ launchId: LAUNCH, offset: 0, signal }));
    expect(exit).toEqual({ kind: 'exit', reason: 'lost', exitCode: null });
    await client.launch({ launchId: LAUNCH, request: REQUEST, signal });
    expect(started).toEqual([]);
    await client.close();
  });

  it('gives up a sandbox only where it is proven to be gone', async () => {
    const answers = [
      new SandboxError('unavailable', 'the engine restarts'),
      new SandboxError('gone', 'no such sandbox'),
    ];
    const client = new SupervisorClient({
      connect: () => Promise.reject(answers.shift() ?? new Error('asked too often')),
    });
    const { signal } = new AbortController();
    const { exit } = await take(client.follow({ launchId: LAUNCH, offset: 0, signal }));
    expect(exit?.reason).toBe('lost');
    expect(answers).toEqual([]);
  });

  it('takes a connection that says nothing for broken', async () => {
    const { supervisor } = await printingSupervisor(root);
    let connections = 0;
    const client = new SupervisorClient({
      silenceMs: 50,
      connect: async () => {
        connections += 1;
        if (connections === 1) return duplexPair()[0];
        return transport((one) => serveSupervisor(one, supervisor, { beatMs: 10 })).connection;
      },
    });
    const { signal } = new AbortController();
    await client.launch({ launchId: LAUNCH, request: REQUEST, signal });
    expect(connections).toBe(2);
    await client.close();
  });

  it('says at once that a launch cannot be made now', async () => {
    const client = new SupervisorClient({
      connect: () => Promise.reject(new SandboxError('unavailable', 'the engine restarts')),
    });
    const { signal } = new AbortController();
    await expect(
      client.launch({ launchId: LAUNCH, request: REQUEST, signal }),
    ).rejects.toMatchObject({ kind: 'unavailable', message: 'the engine restarts' });
  });

  it('does not know whether a launch runs that did not begin in time', async () => {
    const client = new SupervisorClient({ connect: async () => duplexPair()[0] });
    const signal = AbortSignal.timeout(20);
    await expect(
      client.launch({ launchId: LAUNCH, request: REQUEST, signal }),
    ).rejects.toMatchObject({ kind: 'unavailable' });
    await client.close();
  });

  it('runs scripts, which leave no files', async () => {
    const { supervisor, folder } = await printingSupervisor(root);
    const client = new SupervisorClient({
      connect: async () => transport((one) => serveSupervisor(one, supervisor)).connection,
    });
    const { signal } = new AbortController();
    const result = await client.run({ launchId: LAUNCH, request: REQUEST, signal });
    expect(result).toEqual({ exitCode: 3, outputTail: PIECES.join('') });
    expect(existsSync(folder.path)).toBe(false);
    await client.close();
  });

  it('writes files and looks programs up, as the supervisor says', async () => {
    const { supervisor } = await printingSupervisor(root);
    const client = new SupervisorClient({
      connect: async () => transport((one) => serveSupervisor(one, supervisor)).connection,
    });
    const { signal } = new AbortController();
    await client.write({ files: Buffer.from('packed'), home: '/home/agent', signal });
    const environment = { PATH: '/bin' };
    expect(await client.hasPrograms({ names: [], environment, signal })).toBe(true);
    expect(await client.hasPrograms({ names: ['claude'], environment, signal })).toBe(false);
    await client.close();
  });

  it('does not run a script again whose connection breaks', async () => {
    const { supervisor, started } = await printingSupervisor(root);
    const client = new SupervisorClient({
      connect: async () =>
        transport((one) => serveSupervisor(one, supervisor), {
          direction: 'down',
          at: 60,
          how: 'cut',
        }).connection,
    });
    const { signal } = new AbortController();
    await expect(client.run({ launchId: LAUNCH, request: REQUEST, signal })).rejects.toMatchObject({
      kind: 'failed',
      message: 'the script was interrupted',
    });
    expect(started).toHaveLength(1);
    await client.close();
  });

  it('closes a connection that nobody uses, and opens another one', async () => {
    const { supervisor } = await printingSupervisor(root);
    const served: Promise<void>[] = [];
    const client = new SupervisorClient({
      idleMs: 10,
      connect: async () => {
        const way = transport((one) => serveSupervisor(one, supervisor));
        served.push(way.served);
        return way.connection;
      },
    });
    const { signal } = new AbortController();
    await client.launch({ launchId: LAUNCH, request: REQUEST, signal });
    await served[0];
    expect(client.isConnected).toBe(false);
    const { text } = await take(client.follow({ launchId: LAUNCH, offset: 0, signal }));
    expect([text, served.length]).toEqual([PIECES.join(''), 2]);
    await client.close();
  });

  it('refuses names that would be paths, and calls that there are not', async () => {
    const { supervisor } = await printingSupervisor(root);
    const client = new SupervisorClient({
      connect: async () => transport((one) => serveSupervisor(one, supervisor)).connection,
    });
    const { signal } = new AbortController();
    await expect(client.kill({ launchId: '../../etc', signal })).rejects.toMatchObject({
      kind: 'failed',
      message: 'not a sandbox or launch id',
    });
    await client.close();
  });

  it('stops when the signal fires', async () => {
    const client = new SupervisorClient({ connect: async () => duplexPair()[0] });
    const stop = new AbortController();
    const following = take(client.follow({ launchId: LAUNCH, offset: 0, signal: stop.signal }));
    stop.abort();
    await expect(following).rejects.toMatchObject({ kind: 'aborted' });
    await client.close();
  });
});
