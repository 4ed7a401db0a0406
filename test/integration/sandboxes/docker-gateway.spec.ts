import { randomBytes, randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type Docker from 'dockerode';
import { endpointOf } from '../../../src/gateway/egress/address-policy.js';
import { GrantSeal, KEY_PREFIXES } from '../../../src/gateway/grants.js';
import { DockerSandboxDriver } from '../../../src/sandboxes/driver/docker/docker-sandbox-driver.js';
import type { DockerSandboxOptions } from '../../../src/sandboxes/driver/docker/options.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { makeCertificates } from '../../support/certificates.js';
import { engine, removeInstallation } from '../../support/docker-engine.js';
import { describeWith } from '../../support/requirements.js';
import { eventually } from '../../support/sessions.js';
import { startHttp, type TestServer } from '../relay/servers.js';
import { newDockerOptions } from './docker-installations.js';

const signal = new AbortController().signal;
const network = { mode: 'limited', allowedHosts: [] } as const;
const HOUR_MS = 3_600_000;
/** The operator's key, which no sandbox may see. */
const KEY = `sk-real-${randomUUID()}`;
/** A request to the model's API, with the grant in the place of the key. */
const ASK = `exec 3<>/dev/tcp/127.0.0.1/80
printf 'GET /anthropic/v1/models/%s HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nX-Api-Key: %s\\r\\nConnection: close\\r\\n\\r\\n' "$NAME" "$GRANT" >&3
cat <&3
exec 3>&-`;

/** Kills a process. @returns whether there was one */
function killed(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

const untilExists = (path: string): string => `until [ -e ${path} ]; do sleep 0.05; done`;

type Options = DockerSandboxOptions & { name: string };

interface Where {
  by: DockerSandboxDriver;
  id: string;
  /** The sandbox that the grant belongs to. */
  grantOf: string;
  /** Default: one of the first installation. */
  grant: string;
  /** The model that is asked for. */
  name: string;
}

describeWith(['a Docker engine', 'root', 'debootstrap'], 'the gateway of an installation', () => {
  const docker = engine();
  const made: Options[] = [];
  const drivers: DockerSandboxDriver[] = [];
  /** Notified of requests to `/v1/models/held`, which are answered by the test. */
  const held = new EventEmitter();
  let upstream: TestServer;
  let options: Options;
  let driver: DockerSandboxDriver;
  let sandboxId: string;

  beforeAll(async () => {
    upstream = await startHttp((request, response) => {
      if (request.url?.endsWith('/held')) held.emit('request', response);
      else response.end(`key ${String(request.headers['x-api-key'] === KEY)}`);
    });
    options = await installation();
    driver = driverWith(options);
    sandboxId = await create(driver);
  }, 300_000);

  afterAll(async () => {
    await Promise.all(drivers.map((each) => each.close()));
    for (const { name } of made) await removeInstallation(name);
    await upstream.close();
  });

  async function installation(): Promise<Options> {
    const grantKeys = [randomBytes(32).toString('base64url')];
    const trusted = [endpointOf('127.0.0.1', upstream.port)];
    const own = await newDockerOptions({ gatewayConfig: { grantKeys, trusted } });
    made.push(own);
    return own;
  }

  function driverWith(own: Options): DockerSandboxDriver {
    const another = new DockerSandboxDriver(own);
    drivers.push(another);
    return another;
  }

  async function create(by: DockerSandboxDriver): Promise<string> {
    const id = randomUUID();
    await by.create({ sandboxId: id, writableRoot: false, network, signal });
    return id;
  }

  function grantFor(
    sandbox: string,
    { gatewayConfig } = options,
    url = `http://127.0.0.1:${upstream.port}`,
  ): string {
    const seal = new GrantSeal(gatewayConfig.grantKeys);
    const holder = { sandbox, session: randomUUID(), turn: randomUUID(), user: randomUUID() };
    const model = { kind: 'model', api: 'anthropic', url, key: KEY } as const;
    return (
      KEY_PREFIXES.anthropic + seal.seal({ ...holder, expires: Date.now() + HOUR_MS, ...model })
    );
  }

  /** Starts a script in a sandbox, with a grant of the first installation. Default: in its first sandbox. */
  async function start(script: string, where: Partial<Where> = {}) {
    const { by = driver, id = sandboxId, name = 'any' } = where;
    const grantOf = where.grantOf ?? id;
    const env = { GRANT: where.grant ?? grantFor(grantOf), NAME: name };
    const launch = { sandboxId: id, ...bash(script, { env }) };
    await by.launch(launch);
    return { ended: async () => (await outcomeOf(by.follow({ ...launch, offset: 0 }))).stdout };
  }

  const ask = async (where?: Partial<Where>): Promise<string> => (await start(ASK, where)).ended();

  /** The containers of gateways that run, by name. */
  async function running(own = options): Promise<Map<string, Docker.Container>> {
    const labels = [`agent-session.installation=${own.name}`, 'agent-session.role=gateway'];
    const found = await docker.listContainers({ filters: { label: labels } });
    return new Map(
      found.map(({ Id, Names: [name = ''] }) => [name.slice(1), docker.getContainer(Id)]),
    );
  }
  const gateway = (): Promise<Docker.Container> =>
    eventually(
      async () => (await running()).get(`agent-session-${options.name}-gateway`),
      'a gateway to run',
    );
  /** Kills the gateway, which another start may be replacing. @returns its process id */
  function kill(): Promise<number> {
    return eventually(async () => {
      const { Pid } = (await (await gateway()).inspect()).State;
      // Zero would be the test's own process group.
      return Pid > 0 && killed(Pid) && Pid;
    }, 'a gateway to kill');
  }
  /** Makes a file in the sandbox, past the driver. */
  async function touch(path: string): Promise<void> {
    const container = docker.getContainer(`agent-session-${options.name}-${sandboxId}`);
    await (await container.exec({ Cmd: ['touch', path] })).start({});
  }

  it('adds the key that sandboxes do not have', async () => {
    expect(await ask()).toMatch(/^HTTP\/1.1 200 OK\r\n[^]*\r\n\r\nkey true$/);
    const seen = await start('env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null');
    expect(await seen.ended()).not.toContain(KEY);
  });

  it('has its keys neither in its arguments nor in a label, the image or the log', async () => {
    const container = await gateway();
    const { Config, Path, Args, Image } = await container.inspect();
    const image = docker.getImage(Image);
    const shown = JSON.stringify([
      ...[Config.Labels, Config.Entrypoint, Config.Cmd, Path, Args],
      ...[await image.inspect(), await image.history()],
      (await container.logs({ stdout: true, stderr: true })).toString('latin1'),
    ]);
    for (const key of [...options.gatewayConfig.grantKeys, KEY]) expect(shown).not.toContain(key);
  });

  it('is reached by workers through the engine, until either side ends', async () => {
    const pipes = async () =>
      (
        (await (await gateway()).top({ ps_args: '-o pid,args' })) as { Processes: string[][] }
      ).Processes.flat().filter((args) => args.includes('gateway-pipe')).length;
    const [leaving, staying] = await Promise.all([
      driver.connectGateway(),
      driver.connectGateway(),
    ]);
    for (const stream of [leaving, staying]) {
      stream.on('error', () => undefined);
      stream.write('{"hold":true}\n');
      const [answer] = (await once(stream, 'data')) as [Buffer];
      expect(JSON.parse(answer.toString())).toMatchObject({ ok: true });
    }
    expect(await pipes()).toBe(2);
    leaving.destroy();
    await eventually(async () => (await pipes()) === 1, 'the process of the connection to end');
    const ended = once(staying.resume(), 'end');
    await kill();
    await ended;
  });

  it('is waited for when it is killed between two requests', async () => {
    // The second request is sent when the test has killed the gateway.
    const both = await start(`${ASK}
echo first > /workspace/first
${untilExists('/tmp/killed')}
${ASK}`);
    await eventually(
      async () => (await (await start('cat /workspace/first')).ended()) === 'first\n',
      'the first request to be answered',
    );
    const pid = await kill();
    // A launch would start the gateway as well.
    await touch('/tmp/killed');
    expect((await both.ended()).match(/key true/g)).toHaveLength(2);
    const { State } = await (await gateway()).inspect();
    expect(State).toMatchObject({ Running: true });
    expect(State.Pid).not.toBe(pid);
  });

  it('is started again soon, however often it is killed', async () => {
    for (let kills = 0; kills < 7; kills += 1) {
      const pid = await kill();
      let state: object = {};
      await eventually(
        async () => {
          const { State, RestartCount } = await (await gateway()).inspect();
          const { Running, Restarting, Pid } = State;
          state = { ...State, RestartCount, pid, kills };
          return Running && !Restarting && Pid !== pid && Pid !== 0;
        },
        () => `the gateway to run again: ${JSON.stringify(state)}`,
        // The engine alone would wait for 6.4 seconds after the last one.
        5000,
      );
    }
  });

  it('runs again from the next launch on when it was removed, and is waited for until then', async () => {
    const waiting = await start(`${untilExists('/tmp/removed')}\n${ASK}`);
    await (await gateway()).remove({ force: true });
    await touch('/tmp/removed');
    await delay(500);
    expect((await running()).size).toBe(0);
    expect(await ask()).toContain('key true');
    expect(await waiting.ended()).toContain('key true');
  });

  it('refuses grants of another sandbox and of another installation', async () => {
    const second = await create(driver);
    expect(await ask({ grantOf: second })).toMatch(/^HTTP\/1.1 403 [^]*belongs to another sandbox/);
    const other = await installation();
    const by = driverWith(other);
    const id = await create(by);
    expect(await ask({ by, id })).toMatch(/^HTTP\/1.1 401 [^]*not a key of this gateway/);
    expect([...(await running(other)).keys()]).toEqual([`agent-session-${other.name}-gateway`]);
  });

  it('is replaced by one with another configuration, and finishes what it does', async () => {
    const earlier = await gateway();
    const asked = once(held, 'request') as Promise<[ServerResponse]>;
    const long = await start(ASK, { name: 'held' });
    const [response] = await asked;
    response.write('begun, ');
    const [key = ''] = options.gatewayConfig.grantKeys;
    // A large configuration, as with a company's certificates.
    const grantKeys = [key, randomBytes(200_000).toString('base64url')];
    const gatewayConfig = { ...options.gatewayConfig, grantKeys };
    const next = driverWith({ ...options, gatewayConfig });
    expect(await ask({ by: next })).toContain('key true');
    const later = await gateway();
    expect(later.id).not.toBe(earlier.id);
    // A service that still runs with the earlier configuration uses the new one as well.
    expect(await ask()).toContain('key true');
    expect((await gateway()).id).toBe(later.id);
    expect((await running()).size).toBe(2);
    response.end('and ended');
    expect(await long.ended()).toContain('and ended');
    await eventually(async () => (await running()).size === 1, 'the earlier gateway to exit');
    // It does not come back either, which would take the socket from the later one.
    expect(await earlier.inspect()).toMatchObject({
      State: { ExitCode: 0 },
      HostConfig: { RestartPolicy: { Name: 'no' } },
    });
    expect(await ask()).toContain('key true');
  });

  it('trusts the certificates of the operator, and so do programs in sandboxes', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'company-'));
    await makeCertificates(folder);
    const [key, cert] = ['server-key.pem', 'server-cert.pem'].map((name) =>
      readFileSync(join(folder, name)),
    );
    const certificate = readFileSync(join(folder, 'ca.pem'), 'utf8').trim();
    await rm(folder, { recursive: true });
    const server = createServer({ key, cert }, (_, response) => response.end('from the company'));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const own = await installation();
    own.gatewayConfig = {
      ...own.gatewayConfig,
      trusted: [endpointOf('127.0.0.1', port)],
      network: { privateHosts: [], certificates: [certificate] },
    };
    const by = driverWith(own);
    const id = await create(by);
    const url = `https://127.0.0.1:${port}`;
    expect(await ask({ by, id, grant: grantFor(id, own, url) })).toContain('from the company');
    const read = 'cat "$SSL_CERT_FILE"; [ "$NODE_EXTRA_CA_CERTS" = "$SSL_CERT_FILE" ] && echo same';
    const trusted = await (await start(read, { by, id })).ended();
    expect(trusted).toContain(certificate);
    expect(trusted.match(/BEGIN CERTIFICATE/g)?.length).toBeGreaterThan(10);
    expect(trusted).toMatch(/same\n$/);
    const without = await start('env | grep -c pem');
    expect(await without.ended()).toBe('0\n');
    server.close();
  });

  it('serves no sandboxes of earlier versions, and leaves what runs in them alone', async () => {
    const id = randomUUID();
    const relay = `agent-session-${options.name}-${id}-relay`;
    const own = await docker
      .getContainer(`agent-session-${options.name}-${sandboxId}-relay`)
      .inspect();
    const earlier = { ...own.HostConfig, Mounts: [], Binds: [`${relay}-egress:/egress:ro`] };
    const { Image, Entrypoint, User, Labels } = own.Config;
    await docker.createContainer({
      ...{ name: relay, Image, Entrypoint, User, HostConfig: earlier },
      Labels: { ...Labels, 'agent-session.session': id },
    });
    await driver.create({ sandboxId: id, writableRoot: false, network, signal });
    const runs = await start('sleep 2; echo done', { id });
    expect(await driver.exists({ sandboxId: id, signal })).toBe('no');
    expect(await runs.ended()).toBe('done\n');
    expect(await driver.list({ signal })).toContain(id);
    await docker.getContainer(relay).kill();
    await expect(start('echo never', { id })).rejects.toMatchObject({ kind: 'gone' });
    await driver.destroy({ sandboxId: id, signal });
    await docker.getVolume(`${relay}-egress`).remove();
  });
});
