import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { SpritesClient } from '@fly/sprites';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { SpritesSandboxDriver } from '../../../src/sandboxes/driver/sprites/sprites-sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import { namesByEndpoint, Recorder } from '../../support/sprites/recorder.js';
import { spritesOptions } from './sprites-installations.js';

const signal = new AbortController().signal;
const UNUSED = /^not used/;

/** The rows of the table in docs/sprites.md. */
async function readTable(): Promise<{ endpoint: string; client: string; driver: string }[]> {
  const text = await readFile('docs/sprites.md', 'utf8');
  const rows = text.matchAll(/^\| `((?:GET|PUT|POST|DELETE|WS) \/\S+)` *\|(.*?)\|(.*?)\|$/gm);
  return [...rows].map(([, endpoint = '', client = '', driver = '']) => ({
    endpoint,
    client: client.trim(),
    driver: driver.trim(),
  }));
}

/** The names in a cell of the table. */
const namesIn = (cell: string): string[] =>
  [...cell.matchAll(/`([A-Za-z_]+)[^`]*`/g)].map(([, name = '']) => name).toSorted();

describeWith(['root', 'mount namespaces'], 'the table of endpoints', () => {
  const fake = new FakeSprites();
  const client = new Recorder();
  let driver: Recorder;

  beforeAll(async () => {
    await fake.start();
    await client.start();
    driver = await new Recorder(fake.url).start();
  });
  afterAll(() => client.stop());
  afterAll(() => driver.stop());
  afterAll(() => fake.stop());

  it("says what the vendor's client sends", async () => {
    await useAllOf(new SpritesClient('token', { baseURL: client.url }));
    const rows = (await readTable()).map((row) => [row.endpoint, namesIn(row.client)]);
    expect(namesByEndpoint(client.seen)).toEqual(Object.fromEntries(rows));
  });

  it('says what the driver sends', async () => {
    const options = spritesOptions(fake, {
      access: { token: fake.token, baseUrl: driver.url },
      gateway: { url: 'https://gateway.example:8443' },
    });
    await useAllOfDriver(new SpritesSandboxDriver(options), fake);
    const rows = (await readTable())
      .filter((row) => !UNUSED.test(row.driver))
      .map((row) => [row.endpoint, namesIn(row.driver)]);
    expect(namesByEndpoint(driver.seen)).toEqual(Object.fromEntries(rows));
  });
});

/** The life of sandboxes, so that each request of the driver is sent at least once. */
async function useAllOfDriver(driver: SpritesSandboxDriver, fake: FakeSprites): Promise<void> {
  const sandbox = { sandboxId: randomUUID(), signal };
  const network = { mode: 'limited', allowedHosts: [] } as const;
  try {
    await driver.preflight({ signal });
    await driver.create({ ...sandbox, writableRoot: true, network });
    // So many that the list has a second page.
    for (let n = 0; n < 60; n += 1) {
      const [name = ''] = fake.sprites.keys();
      await fetch(`${fake.url}/v1/sprites`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${fake.token}` },
        body: JSON.stringify({ name: `${name.slice(0, -4)}${1000 + n}` }),
      });
    }
    const ids = await driver.list({ signal });
    const setup = (script: string) => driver.runScript({ ...sandbox, as: 'setup', script });
    expect((await setup('exit 3')).exitCode).toBe(3);
    expect((await setup('true')).exitCode).toBe(0);
    const launch = { ...sandbox, ...bash('echo up') };
    await driver.launch(launch);
    await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    // A service of another version, which nobody has used for long.
    const [sprite] = fake.sprites.values();
    const old = '0123456789abcdef';
    await sprite?.services.put(`agent-session-${old}`, { cmd: 'sleep', args: ['681'] });
    const folder = `/.agent-session/runtime-${old}`;
    const script = `mkdir ${folder}; touch -d '-2 hours' ${folder}/complete`;
    const child = sprite?.machine.spawn({ command: ['sh', '-c', script], root: true });
    await new Promise((resolve) => child?.once('close', resolve));
    await driver.create({ ...sandbox, writableRoot: true, network });
    for (const sandboxId of ids) await driver.destroy({ sandboxId, signal });
  } finally {
    await driver.close();
  }
}

/** Calls everything of the client that is a request, with everything that can be sent. The answers do not matter. */
async function useAllOf(client: SpritesClient): Promise<void> {
  const sprite = client.sprite('s');
  const files = sprite.filesystem('/');
  const all = { config: {}, environment: {}, urlSettings: { auth: 'sprite' as const } };
  const exec = { env: { A: 'b' }, cwd: '/' };
  const session = {
    ...exec,
    detachable: true,
    controlMode: true,
    maxRunAfterDisconnect: '1s',
  };
  const root = { recursive: true, asRoot: true };
  const calls: (() => Promise<unknown>)[] = [
    () => client.createSprite('s', { ...all, labels: [], waitForCapacity: true, runtime: 'dev' }),
    () =>
      client.listSprites({ prefix: 'p', maxResults: 1, continuationToken: 't', bulkLoad: true }),
    () => client.watchSprites({ prefix: 'p', maxResults: 1 }),
    () => client.getSprite('s'),
    () => client.deleteSprite('s'),
    () => client.updateSprite('s', { labels: [], urlSettings: { auth: 'sprite' } }),
    () => client.restartSprite('s'),
    () => client.upgradeSprite('s'),
    () => client.checkSprite('s'),
    () => ended(sprite.spawn('a', ['b'], { ...session, tty: true, rows: 1, cols: 1 })),
    () => ended(sprite.attachSession('id', session)),
    () => sprite.execFileHTTP('a', ['b'], { ...exec, input: 'in' }),
    () => sprite.listSessions(),
    () => sprite.killSession('id', 'KILL', '1s'),
    () => sprite.getNetworkPolicy(),
    () => sprite.updateNetworkPolicy({ rules: [] }),
    () => sprite.getPrivilegesPolicy(),
    () => sprite.updatePrivilegesPolicy({}),
    () => sprite.deletePrivilegesPolicy(),
    () => sprite.getResourcesPolicy(),
    () => sprite.updateResourcesPolicy({}),
    () => sprite.deleteResourcesPolicy(),
    () => files.readFile('f'),
    () => files.writeFile('f', 'x', { mode: 0o600 }),
    () => files.readdir('f', { recursive: true, pattern: '*' }),
    () => files.rm('f', root),
    () => files.rename('f', 'g', root),
    () => files.copyFile('f', 'g', { ...root, preserveAttrs: true }),
    () => files.chmod('f', 0o600, root),
    () => files.chown('f', { ...root, uid: 1, gid: 1 }),
    () => sprite.listServices(),
    () => sprite.getService('id'),
    () =>
      sprite.createService(
        'id',
        { cmd: 'a', args: ['b'], env: { A: 'b' }, dir: '/', needs: ['c'], httpPort: 80 },
        '1s',
      ),
    () => sprite.deleteService('id'),
    () => sprite.startService('id', '1s'),
    () => sprite.stopService('id', '1s'),
    () => sprite.restartService('id', '1s'),
    () => sprite.getServiceLogs('id', { lines: 1, duration: '1s' }),
    () => sprite.signalService('id', 'TERM'),
    () => sprite.createCheckpoint('c'),
    () => sprite.listCheckpoints('h'),
    () => sprite.getCheckpoint('v1'),
    () => sprite.restoreCheckpoint('v1'),
  ];
  for (const call of calls) await call().catch(() => undefined);
}

/** A command whose connection is refused. */
function ended(command: ReturnType<ReturnType<SpritesClient['sprite']>['spawn']>): Promise<void> {
  return new Promise((resolve) => command.on('error', () => resolve()));
}
