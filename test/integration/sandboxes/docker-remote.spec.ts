import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { makeCertificates } from '../../support/certificates.js';
import { leftovers, sandboxImage } from '../../support/docker-engine.js';
import { HttpClient } from '../../support/http-client.js';
import { describeWith } from '../../support/requirements.js';
import { installationOf, query, type Service } from '../../support/service.js';
import { eventually, SessionsOf, startSessionService } from '../../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../../support/test-database.js';
import { OwnEngine } from './own-engine.js';

const TWENTY = 'for i in $(seq 20); do echo $i; sleep 0.15; done';
const LINES = Array.from({ length: 20 }, (_, index) => `${index + 1}\n`).join('');

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => void server.close(resolve));
  return port;
}

describeWith(['root', 'debootstrap', 'dockerd'], 'an engine elsewhere, by TCP with TLS', () => {
  let folder: string;
  let others: string;
  let own: OwnEngine;
  let remote: string;
  let image: string;
  let database: TestDatabase;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'remote-'));
    others = await mkdtemp(join(tmpdir(), 'remote-others-'));
    await Promise.all([makeCertificates(folder), makeCertificates(others)]);
    remote = `tcp://127.0.0.1:${await freePort()}`;
    const file = (name: string): string => join(folder, name);
    own = await OwnEngine.create([
      ...['--host', remote, '--tlsverify', '--tlscacert', file('ca.pem')],
      ...['--tlscert', file('server-cert.pem'), '--tlskey', file('server-key.pem')],
    ]);
    image = await sandboxImage(own.host);
    database = await createTestDatabase();
  }, 300_000);

  afterAll(async () => {
    await own.remove();
    await database.drop();
    await rm(folder, { recursive: true });
    await rm(others, { recursive: true });
  });

  const start = (certificates: string): Promise<Service> =>
    startSessionService(
      {
        SANDBOX_DRIVER: 'docker',
        DOCKER_HOST: remote,
        DOCKER_CERT_PATH: certificates,
        DOCKER_TLS_VERIFY: '1',
        SANDBOX_IMAGE: image,
      },
      { databaseUrl: database.url, dataDir: folder },
    );

  it('runs turns that outlive the service, and is left with nothing', async () => {
    let service = await start(folder);
    const { token } = service;
    const sessions = new SessionsOf(service, service);
    const id = await sessions.create(TWENTY);
    const before = sessions.stream(id);
    await before.until((stream) => stream.output().includes('\n5\n'));
    await service.kill9();
    await before.cut().catch(() => undefined);
    service = await start(folder);
    const again = new SessionsOf(service, { token, http: new HttpClient(service.url, token) });
    try {
      const after = await again.stream(id, { lastEventId: before.events.at(-1)?.id ?? 0 }).end();
      expect(before.output() + after.output()).toBe(LINES);
      expect(after.last).toMatchObject({ type: 'exit', code: 0 });
      await again.prompt(id, 'echo once more');
      expect((await again.stream(id).end()).output()).toBe(`${LINES}once more\n`);
      await again.clear();
      await eventually(
        async () => (await query(database.url, 'SELECT 1 FROM sandboxes')).length === 0,
        'no sandbox to be on record',
      );
      expect(await leftovers(await installationOf(database.url), own.host)).toEqual([]);
    } finally {
      await service.stop();
    }
  });

  it('takes nobody whose certificate is from somewhere else, and the refusal says so', async () => {
    const service = await start(others);
    try {
      const { status, body } = await new SessionsOf(service, service).post('echo never');
      expect([status, body.detail]).toEqual([502, expect.stringMatching(/certificate/i)]);
    } finally {
      await service.stop();
    }
  });
});
