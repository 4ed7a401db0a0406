import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import {
  leaveNothing,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';

/** Fills the disk until somebody stops it. */
const fill = (folder: string): string =>
  `while head -c 8M /dev/zero >> ${folder}/full; do sleep 0.05; done; echo the disk never ended`;

let service: Service;
let sessions: SessionsOf;

describeWith(['sandboxes with software'], 'a full disk', () => {
  beforeAll(async () => {
    await prepareSoftware();
    service = await startSessionService({ SANDBOX_DISK: '64MiB' });
    sessions = new SessionsOf(service, service);
  }, ROOTFS_TIMEOUT_MS);
  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await service.stop();
  });

  it.each([
    ['in the home', '~'],
    ['in /tmp', '/tmp'],
    ['in the system', '/opt'],
  ])(
    '%s while a sandbox is set up fails its stage and its session, and no other',
    async (_, folder) => {
      const environment_id = await sessions.createEnvironment({ setup_script: fill(folder) });
      const [full, other] = await Promise.all([
        sessions.run('echo never', { environment_id }),
        sessions.run('for i in 1 2 3; do echo $i; sleep 1; done'),
      ]);
      const failure = full.events.find(({ state }) => state === 'failed');
      expect(failure).toMatchObject({
        stage: 'provision_setup',
        message: 'the sandbox is out of disk space',
      });
      expect(full.last).toMatchObject({ type: 'error', message: failure?.message });
      expect(full.output()).toBe('');
      expect(other.output()).toBe('1\n2\n3\n');
      expect(other.last).toMatchObject({ type: 'exit', code: 0 });
    },
  );

  it.each(['~', '.', '/tmp', '/var/tmp'])('ends the turn that fills it in %s', async (folder) => {
    const stream = await sessions.run(fill(folder));
    expect(stream.output()).not.toContain('never ended');
    expect(stream.last).toMatchObject({
      type: 'error',
      message: 'The sandbox used more disk than its limit',
    });
  });
});
