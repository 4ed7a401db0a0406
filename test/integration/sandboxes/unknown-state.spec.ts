import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdirSync, renameSync, symlinkSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, connect, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { DockerSandboxDriver } from '../../../src/sandboxes/driver/docker/docker-sandbox-driver.js';
import type { LocalSandboxOptions } from '../../../src/sandboxes/driver/local/options.js';
import type { SandboxDriver, SpoolEvent } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { bash } from '../../contracts/sandbox-driver.contract.js';
import {
  DOCKER_HOST,
  engine as dockerEngine,
  removeInstallation,
} from '../../support/docker-engine.js';
import { describeWith } from '../../support/requirements.js';
import { newDockerOptions } from './docker-installations.js';
import { DriverProcess } from './driver-in-process.js';
import { closeDrivers, newDriver, newOptions } from './local-installations.js';

/** Starting a service several times takes long on a busy machine. */
jest.setTimeout(300_000);

const signal = new AbortController().signal;
const network = { mode: 'unrestricted', allowedHosts: [] } as const;
const LINES = Array.from({ length: 20 }, (_, index) => `${index + 1}\n`).join('');
const TWENTY = 'for i in $(seq 20); do echo $i; sleep 0.2; done; exit 3';

/** Reads a launch to its end, doing something once its first line is there. */
async function read(events: AsyncIterable<SpoolEvent>, onFirst: () => void) {
  let text = '';
  for await (const event of events) {
    if (event.kind === 'exit') return { text, exit: event };
    if (text === '') onFirst();
    text += event.data.toString();
  }
  throw new Error('it ended without an exit');
}

/** How many files a process may open from now on. */
function limitFiles(pid: number, count: number): void {
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${count}:`]);
}

describeWith(['bubblewrap'], 'a local launch of which nothing can be told for a while', () => {
  let options: LocalSandboxOptions;
  let sandboxId: string;
  let service: DriverProcess;

  beforeEach(async () => {
    options = await newOptions('strict');
    sandboxId = randomUUID();
    await newDriver(options).create({ sandboxId, writableRoot: false, network, signal });
    service = await DriverProcess.start(options, null);
  });
  afterEach(async () => {
    await service.stop();
    const driver = newDriver(options);
    await driver.destroy({ sandboxId, signal });
    await closeDrivers();
    await rm(options.stateDir, { recursive: true });
  });

  it('goes on and is told to its end by a service that had no descriptors left', async () => {
    const launch = { sandboxId, ...bash(TWENTY) };
    await service.driver.launch(launch);
    let meanwhile: Promise<unknown[]> = Promise.resolve([]);
    const told = await read(service.driver.follow({ ...launch, offset: 0 }), () => {
      limitFiles(service.pid, 3);
      meanwhile = (async () => {
        await delay(1_500);
        const kindOf = (failing: Promise<unknown>) =>
          failing.then(String, ({ kind }: { kind: unknown }) => kind);
        const found = [
          await service.driver.exists({ sandboxId, signal }),
          await kindOf(service.driver.list({ signal })),
          await kindOf(service.driver.launch({ sandboxId, ...bash('true') })),
        ];
        limitFiles(service.pid, 1024);
        return found;
      })();
    });
    expect(await meanwhile).toEqual(['unknown', 'unavailable', 'unavailable']);
    expect(told).toEqual({ text: LINES, exit: { kind: 'exit', reason: 'exited', exitCode: 3 } });
    expect(await service.driver.exists({ sandboxId, signal })).toBe('yes');
  });

  it('is not lost to a service that begins to follow it without descriptors', async () => {
    const launch = { sandboxId, ...bash(TWENTY) };
    await service.driver.launch(launch);
    limitFiles(service.pid, 3);
    const told = read(service.driver.follow({ ...launch, offset: 0 }), () => undefined);
    await delay(1_500);
    limitFiles(service.pid, 1024);
    expect(await told).toMatchObject({ text: LINES, exit: { reason: 'exited', exitCode: 3 } });
  });

  it('has not gone with the folder of all sandboxes, while that cannot be reached', async () => {
    const driver = newDriver(options);
    await driver.preflight({ signal });
    const away = `${options.stateDir}.away`;
    renameSync(options.stateDir, away);
    try {
      expect(await driver.exists({ sandboxId, signal })).toBe('unknown');
      await expect(driver.list({ signal })).rejects.toMatchObject({ kind: 'unavailable' });
    } finally {
      renameSync(away, options.stateDir);
    }
    expect(await driver.exists({ sandboxId, signal })).toBe('yes');
    expect(await driver.exists({ sandboxId: randomUUID(), signal })).toBe('no');
  });

  it('has not ended because its folder cannot be looked up', async () => {
    const driver = newDriver(options);
    const launch = { sandboxId, launchId: randomUUID(), signal };
    const launches = join(options.stateDir, sandboxId, 'launches');
    mkdirSync(launches, { recursive: true });
    symlinkSync(launch.launchId, join(launches, launch.launchId));
    await expect(driver.kill(launch)).rejects.toMatchObject({ code: 'ELOOP' });
  });
});

/** A way to an engine that a test can block: it takes connections and says nothing, or refuses them. */
class BlockableEngine {
  private readonly sockets = new Set<Socket>();
  private hangs = false;
  /** A request that is forwarded, but whose answer is cut off. */
  private unanswered: RegExp | undefined;

  private constructor(
    private readonly server: Server,
    readonly path: string,
  ) {}

  static async start(path: string): Promise<BlockableEngine> {
    const server = createServer({ allowHalfOpen: true });
    const engine = new BlockableEngine(server, path);
    server.on('connection', (socket) => engine.accept(socket));
    await engine.listen();
    return engine;
  }

  get host(): string {
    return `unix://${this.path}`;
  }

  /** From now on nothing gets through, and what is under way falls silent. */
  hang(): void {
    this.hangs = true;
    for (const socket of this.sockets) socket.pause().unpipe();
  }

  /** Cuts off the answers to such requests. */
  cutAnswerTo(request: RegExp): void {
    this.unanswered = request;
  }

  async refuse(): Promise<void> {
    const closed = new Promise((resolve) => void this.server.close(resolve));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  /** What hung never comes back; what is new gets through. */
  heal(): void {
    this.hangs = false;
    this.unanswered = undefined;
    for (const socket of this.sockets) socket.destroy();
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.server.listen(this.path, resolve));
  }

  async close(): Promise<void> {
    await this.refuse();
  }

  private accept(socket: Socket): void {
    this.track(socket);
    if (this.hangs) return;
    const engine = this.track(
      connect({ path: DOCKER_HOST.replace(/^unix:\/\//, ''), allowHalfOpen: true }),
    );
    socket.pipe(engine).pipe(socket);
    socket.on('data', (data) => {
      if (!this.unanswered?.test(data.toString('latin1'))) return;
      engine.once('data', () => engine.unpipe());
    });
    socket.once('close', () => engine.destroy());
    engine.once('close', () => socket.destroy());
  }

  private track(socket: Socket): Socket {
    this.sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => this.sockets.delete(socket));
    return socket;
  }
}

describeWith(['a Docker engine', 'root', 'debootstrap'], 'a launch on an engine', () => {
  let engine: BlockableEngine;
  let folder: string;
  let name: string;
  let driver: SandboxDriver;
  let sandboxId: string;

  beforeEach(async () => {
    const options = await newDockerOptions();
    name = options.name;
    folder = await mkdtemp(join(tmpdir(), 'blockable-'));
    engine = await BlockableEngine.start(join(folder, 'socket'));
    driver = new DockerSandboxDriver({ ...options, engine: { host: engine.host } });
    sandboxId = randomUUID();
    await driver.create({ sandboxId, writableRoot: false, network, signal });
  });
  afterEach(async () => {
    await driver.destroy({ sandboxId, signal });
    await engine.close();
    await rm(folder, { recursive: true });
    await removeInstallation(name);
  });

  it.each(['hangs', 'refuses'])(
    'that %s goes on, and is told to its end when the engine is back',
    async (how) => {
      const launch = { sandboxId, ...bash(TWENTY) };
      await driver.launch(launch);
      let blocked: Promise<void> = Promise.resolve();
      const told = await read(driver.follow({ ...launch, offset: 0 }), () => {
        blocked = (async () => {
          if (how === 'hangs') engine.hang();
          else await engine.refuse();
          const soon = AbortSignal.timeout(500);
          expect(await driver.exists({ sandboxId, signal: soon })).toBe('unknown');
          await expect(driver.list({ signal: AbortSignal.timeout(500) })).rejects.toMatchObject({
            kind: 'unavailable',
          });
          if (how === 'hangs') engine.heal();
          else await engine.listen();
        })();
      });
      await blocked;
      expect(told).toMatchObject({ text: LINES, exit: { reason: 'exited', exitCode: 3 } });
      expect(await driver.exists({ sandboxId, signal })).toBe('yes');
    },
  );

  it('that may have been started is no failure of it, and starts once', async () => {
    const launch = { sandboxId, ...bash('echo started; echo x >> starts; cat starts') };
    engine.cutAnswerTo(/exec\/\w+\/start/);
    await expect(
      driver.launch({ ...launch, signal: AbortSignal.timeout(3_000) }),
    ).rejects.toMatchObject({ kind: 'unavailable' });
    engine.heal();
    await driver.launch(launch);
    const told = await read(driver.follow({ ...launch, offset: 0 }), () => undefined);
    expect(told).toMatchObject({ text: 'started\nx\n', exit: { reason: 'exited', exitCode: 0 } });
  });

  it('is not refused for good while its sandbox is paused', async () => {
    const launch = { sandboxId, ...bash('echo started') };
    const container = dockerEngine().getContainer(`agent-session-${name}-${sandboxId}`);
    await container.pause();
    await expect(driver.launch(launch)).rejects.toMatchObject({ kind: 'unavailable' });
    await container.unpause();
    await driver.launch(launch);
    const told = await read(driver.follow({ ...launch, offset: 0 }), () => undefined);
    expect(told).toMatchObject({ text: 'started\n', exit: { reason: 'exited' } });
  });

  it('that is paused is waited for', async () => {
    const launch = { sandboxId, ...bash(TWENTY) };
    await driver.launch(launch);
    const docker = (command: string) =>
      execFileSync('docker', [command, `agent-session-${name}-${sandboxId}`], {
        env: { ...process.env, DOCKER_HOST },
      });
    docker('pause');
    const told = read(driver.follow({ ...launch, offset: 0 }), () => undefined);
    await delay(1_500);
    docker('unpause');
    expect(await told).toMatchObject({ text: LINES, exit: { reason: 'exited', exitCode: 3 } });
  });
});

describe('the check of a host', () => {
  it('is made once for all that ask at the same time', async () => {
    const options = await newOptions('strict');
    const [one, many] = [newDriver(options), newDriver(options)];
    const [byOne, byMany] = [countStarted(one), countStarted(many)];
    await one.preflight({ signal });
    await Promise.all(Array.from({ length: 20 }, () => many.preflight({ signal })));
    expect(byOne()).toBeGreaterThan(0);
    expect(byMany()).toBe(byOne());
    await closeDrivers();
    await rm(options.stateDir, { recursive: true });
  });
});

/** How many programs a driver has started. */
function countStarted(driver: SandboxDriver): () => number {
  const { launcher } = driver as unknown as { launcher: { run(...args: unknown[]): unknown } };
  const run = launcher.run.bind(launcher);
  let count = 0;
  launcher.run = (...args) => {
    count += 1;
    return run(...args);
  };
  return () => count;
}
