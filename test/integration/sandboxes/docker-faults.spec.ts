import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { DockerSandboxDriver } from '../../../src/sandboxes/driver/docker/docker-sandbox-driver.js';
import type { DockerSandboxOptions } from '../../../src/sandboxes/driver/docker/options.js';
import { NAMESERVER } from '../../../src/supervisor/relay/listener-plan.js';
import { packageRoot } from '../../../src/common/package-root.js';
import { bash, outcomeOf, type Outcome } from '../../contracts/sandbox-driver.contract.js';
import {
  engine,
  leftovers,
  removeInstallation,
  sandboxImage,
} from '../../support/docker-engine.js';
import { describeWith } from '../../support/requirements.js';
import { startHttps, startTcp } from '../relay/servers.js';
import { newDockerOptions } from './docker-installations.js';
import { OwnEngine } from './own-engine.js';

const MiB = 1024 * 1024;
const FIXTURE = fileURLToPath(new URL('docker-create.fixture.mjs', import.meta.url));
const signal = new AbortController().signal;
const network = { mode: 'unrestricted', allowedHosts: [] } as const;
/** The relay answers DNS over TCP; without it nothing listens on that address. */
const ASK_RELAY = `(exec 3<>/dev/tcp/${NAMESERVER}/53) && echo served`;

async function problemOf(driver: DockerSandboxDriver, limitMs = 2000): Promise<unknown> {
  return driver.preflight({ signal: AbortSignal.timeout(limitMs) }).then(
    () => 'none',
    (error: unknown) => error,
  );
}

/** An engine that cannot be used, as options. */
const at = (host: string, certPath?: string): DockerSandboxOptions => ({
  engine: { host, ...(certPath !== undefined && { certPath }) },
  installation: () => Promise.resolve('nowhere'),
  image: 'no-such-image',
  limits: { processes: 1, memoryBytes: 1, diskBytes: 1, tmpBytes: 1, openFiles: 1 },
  gateways: [],
  gatewayConfig: { grantKeys: [], trusted: [] },
  cache: { images: 1, seconds: 1 },
  buildLimitMs: 900_000,
});

describe('an engine that cannot be used', () => {
  it('is named with the cause when it is away', async () => {
    expect(
      await problemOf(new DockerSandboxDriver(at('unix:///nowhere/docker.sock'))),
    ).toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(
        /^the Docker engine at unix:\/\/\/nowhere\/docker.sock does not answer: .*ENOENT/,
      ) as unknown,
    });
  });

  it('is not waited for when it hangs', async () => {
    const silent = await startTcp(() => undefined);
    const { port } = silent;
    expect(await problemOf(new DockerSandboxDriver(at(`tcp://127.0.0.1:${port}`)))).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('does not answer in time') as unknown,
    });
    await silent.close();
  });

  it('is not trusted with a certificate of somebody else', async () => {
    const impostor = await startHttps((_, response) => response.end('{}'));
    const other = await startHttps((_, response) => response.end());
    const certPath = await mkdtemp(join(tmpdir(), 'certificates-'));
    await writeFile(join(certPath, 'ca.pem'), other.certificate);
    await writeFile(join(certPath, 'cert.pem'), other.certificate);
    await writeFile(join(certPath, 'key.pem'), other.key);
    const host = `tcp://127.0.0.1:${impostor.port}`;
    expect(await problemOf(new DockerSandboxDriver(at(host, certPath)))).toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(/certificate/i) as unknown,
    });
    await rm(join(certPath, 'key.pem'));
    expect(await problemOf(new DockerSandboxDriver(at(host, certPath)))).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('DOCKER_CERT_PATH') as unknown,
    });
    await rm(certPath, { recursive: true });
    await Promise.all([impostor.close(), other.close()]);
  });
});

describeWith(['a Docker engine', 'root', 'debootstrap'], 'docker sandboxes on bad days', () => {
  let options: DockerSandboxOptions & { name: string };
  let driver: DockerSandboxDriver;
  let sandboxId: string;

  beforeAll(async () => {
    options = await newDockerOptions();
    options.limits = { ...options.limits, diskBytes: 64 * MiB, memoryBytes: 256 * MiB };
    driver = new DockerSandboxDriver(options);
    sandboxId = await create();
  }, 300_000);

  afterAll(async () => {
    for (const id of await driver.list({ signal })) await driver.destroy({ sandboxId: id, signal });
    const left = await leftovers(options.name);
    await removeInstallation(options.name);
    expect(left).toEqual([]);
  }, 300_000);

  async function create(more = {}): Promise<string> {
    const id = randomUUID();
    await driver.create({ sandboxId: id, writableRoot: false, network, signal, ...more });
    return id;
  }

  async function run(script: string, more = {}): Promise<Outcome> {
    const launch = { sandboxId, ...bash(script, more) };
    await driver.launch(launch);
    return outcomeOf(driver.follow({ ...launch, offset: 0 }));
  }

  const containerOf = (id: string) => engine().getContainer(`agent-session-${options.name}-${id}`);

  it('needs an image and a runtime that are there, and leaves nothing when they are not', async () => {
    const bad = { ...options, image: 'no-such-image:1' };
    expect(await problemOf(new DockerSandboxDriver(bad))).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('no image no-such-image:1') as unknown,
    });
    const before = await leftovers(options.name);
    await expect(
      new DockerSandboxDriver(bad).create({
        sandboxId: randomUUID(),
        writableRoot: false,
        network,
        signal,
      }),
    ).rejects.toMatchObject({ kind: 'unavailable' });
    expect(await leftovers(options.name)).toEqual(before);
    const runtime = 'no-such-runtime';
    expect(await problemOf(new DockerSandboxDriver({ ...options, runtime }))).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('no runtime no-such-runtime') as unknown,
    });
  });

  it('holds a fork bomb, and ends it', async () => {
    const launch = {
      sandboxId,
      ...bash('echo up; bomb() { bomb | bomb & }; bomb 2>/dev/null; while :; do sleep 1; done'),
    };
    await driver.launch(launch);
    await delay(1000);
    await driver.kill(launch);
    expect(await outcomeOf(driver.follow({ ...launch, offset: 0 }))).toMatchObject({
      stdout: 'up\n',
      exit: { reason: 'killed' },
    });
    expect((await run('echo alive')).stdout).toBe('alive\n');
  });

  it('ends what takes too much memory or disk', async () => {
    const memory = await run(
      `for i in 1 2 3 4; do perl -e '$x = "a" x (40 << 20); sleep 20' & sleep 0.2; done; wait; echo all`,
    );
    expect(memory.stdout).toBe('');
    expect(memory.exit.reason).toBe('memory_limit');
    // In one of its own, which stays full.
    const launch = {
      sandboxId: await create(),
      ...bash('cat /dev/zero > big', { deadline: Date.now() + 30_000 }),
    };
    await driver.launch(launch);
    const disk = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    expect(disk.exit.reason).toBe('disk_limit');
    await driver.destroy({ sandboxId: launch.sandboxId, signal });
  });

  it('loses a launch whose container dies, after all output that there is', async () => {
    const launch = { sandboxId, ...bash('echo before; sleep 600') };
    await driver.launch(launch);
    const events = driver.follow({ ...launch, offset: 0 });
    expect((await events.next()).value).toMatchObject({ kind: 'chunk' });
    await containerOf(sandboxId).kill();
    expect((await events.next()).value).toEqual({ kind: 'exit', reason: 'lost', exitCode: null });
    expect(await outcomeOf(driver.follow({ ...launch, offset: 0 }))).toMatchObject({
      stdout: 'before\n',
      exit: { reason: 'lost' },
    });
    expect((await run('echo again')).stdout).toBe('again\n');
  });

  it('serves the network again when its relay died', async () => {
    await engine().getContainer(`agent-session-${options.name}-${sandboxId}-relay`).kill();
    expect((await run(ASK_RELAY)).stdout).toBe('served\n');
  });

  it('finds and removes what a process left that was killed while it made sandboxes', async () => {
    const module = join(packageRoot(), 'dist/src/sandboxes/driver/docker/docker-sandbox-driver.js');
    for (const milliseconds of [80, 400]) {
      const child = fork(FIXTURE, [module, JSON.stringify(options), options.name]);
      await new Promise((ready) => void child.once('message', ready));
      const until = Date.now() + 100_000;
      const before = (await leftovers(options.name)).length;
      while ((await leftovers(options.name)).length <= before && Date.now() < until)
        await delay(20);
      await delay(milliseconds);
      const gone = new Promise((resolve) => void child.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
    }
    // What it had asked the engine for may still be on its way.
    await delay(1000);
    const found = (await driver.list({ signal })).filter((id) => id !== sandboxId);
    expect(found.length).toBeGreaterThan(0);
    await Promise.all(found.map((id) => driver.destroy({ sandboxId: id, signal })));
    expect(await driver.list({ signal })).toEqual([sandboxId]);
    expect((await leftovers(options.name)).every((name) => name.includes(sandboxId))).toBe(true);
  });

  it('takes over what a reusable script has installed, and nothing of the session', async () => {
    const secret = `s3cret-${randomUUID()}`;
    const script =
      'id -u; date +%s%N > /usr/local/stamp; echo home > ~/.config-made; echo work > /workspace/made';
    const stamps: string[] = [];
    for (const user of ['first', 'second']) {
      sandboxId = await create({ writableRoot: true });
      const files = [{ path: '/home/agent/.env', content: `${user} ${secret}`, mode: 0o600 }];
      await driver.writeFiles({ sandboxId, files, signal });
      const result = await driver.runScript({
        sandboxId,
        script,
        as: 'setup',
        reusable: true,
        signal,
      });
      expect(result).toMatchObject({ exitCode: 0 });
      const { stdout } = await run(
        'cat ~/.config-made made; echo more >> ~/.config-made; cut -d" " -f1 ~/.env; cat /usr/local/stamp',
      );
      const [home, work, owner, stamp = ''] = stdout.split('\n');
      expect([home, work, owner]).toEqual(['home', 'work', user]);
      stamps.push(stamp);
    }
    expect(stamps[1]).toBe(stamps[0]);
    // Another script is another image; a script that fails is none.
    const failed = await driver.runScript({
      sandboxId,
      script: 'echo no; exit 7',
      as: 'setup',
      reusable: true,
      signal,
    });
    expect(failed).toEqual({ exitCode: 7, outputTail: 'no\n' });
    const { image } = await containerOf(sandboxId)
      .inspect()
      .then(({ Image }) => ({ image: Image }));
    const seen = await engine().run(
      image,
      ['grep', '-rl', secret.slice(0, 20), '/home', '/var/lib/agent-session', '/workspace'],
      undefined as never,
      { HostConfig: { NetworkMode: 'none', AutoRemove: true } },
    );
    expect((seen as [{ StatusCode: number }])[0].StatusCode).toBe(1);
  });
});

describeWith(['root', 'debootstrap', 'dockerd'], 'an engine of its own', () => {
  let own: OwnEngine;
  let options: DockerSandboxOptions & { name: string };
  let driver: DockerSandboxDriver;

  beforeAll(async () => {
    own = await OwnEngine.create(['--add-runtime', 'broken=/bin/false']);
    options = {
      ...(await newDockerOptions()),
      engine: { host: own.host },
      image: await sandboxImage(own.host),
    };
    driver = new DockerSandboxDriver(options);
  });

  afterAll(() => own.remove());

  it('that stops in mid-turn is waited for, loses what ran, and keeps the sandbox for the next turn', async () => {
    const sandboxId = randomUUID();
    await driver.create({ sandboxId, writableRoot: false, network, signal });
    const launch = { sandboxId, ...bash('echo before > kept; echo before; sleep 600') };
    await driver.launch(launch);
    const events = driver.follow({ ...launch, offset: 0 });
    expect((await events.next()).value).toMatchObject({ kind: 'chunk' });
    await own.stop();
    expect(await problemOf(driver)).toMatchObject({ kind: 'unavailable' });
    const next = events.next();
    await delay(500);
    await own.start();
    expect((await next).value).toEqual({ kind: 'exit', reason: 'lost', exitCode: null });
    expect(await driver.exists({ sandboxId, signal })).toBe('yes');
    const again = { sandboxId, ...bash(`cat kept; ${ASK_RELAY}`) };
    await driver.launch(again);
    expect((await outcomeOf(driver.follow({ ...again, offset: 0 }))).stdout).toBe(
      'before\nserved\n',
    );
    await driver.destroy({ sandboxId, signal });
  });

  it('starts a gateway again that dies, for the sandboxes that run', async () => {
    const sandboxId = randomUUID();
    await driver.create({ sandboxId, writableRoot: false, network, signal });
    const docker = engine(own.host);
    const filters = { label: ['agent-session.role=gateway'] };
    const [found] = await docker.listContainers({ filters });
    const gateway = docker.getContainer(found?.Id ?? '');
    const state = async () => (await gateway.inspect()).State;
    const { Pid: before } = await state();
    process.kill(before, 'SIGKILL');
    const until = Date.now() + 100_000;
    while (Date.now() < until && [0, before].includes((await state()).Pid)) await delay(50);
    expect(await state()).toMatchObject({ Running: true, OOMKilled: false });
    expect((await state()).Pid).not.toBe(before);
    await driver.destroy({ sandboxId, signal });
  });

  it('has to have a runtime that runs the programs of the image', async () => {
    const problemWith = (runtime: string) =>
      problemOf(new DockerSandboxDriver({ ...options, runtime }), 100_000);
    expect(await problemWith('broken')).toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(
        /^the runtime broken does not run the programs of agent-session-test:.*: .*OCI runtime/,
      ) as unknown,
    });
    expect(await leftovers(options.name, own.host)).toEqual([]);
    // One that does is the engine's own by its name.
    expect(await problemWith('runc')).toBe('none');
  });
});
