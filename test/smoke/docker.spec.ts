import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { removeAbandoned } from '../support/docker-engine.js';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import {
  leaveNothing,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';

describeWith(['a Docker engine', 'debootstrap'], 'a session in a container', () => {
  let service: Service;
  let sessions: SessionsOf;
  beforeAll(async () => {
    // For this file alone: services, and what looks at what they have left, go by it.
    process.env['SANDBOX_DRIVER'] = 'docker';
    await removeAbandoned();
    service = await startSessionService();
    sessions = new SessionsOf(service, service);
  }, ROOTFS_TIMEOUT_MS);
  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await service.stop();
    delete process.env['SANDBOX_DRIVER'];
  });

  it('runs from POST to exit, and a second turn finds its files', async () => {
    const id = await sessions.create('echo kept > note; echo out; echo err >&2; exit 0');
    const first = await sessions.stream(id).end();
    expect(first.output('stdout')).toBe('out\n');
    expect(first.output('stderr')).toBe('err\n');
    expect(first.events.at(-1)).toMatchObject({ type: 'exit', code: 0 });
    await sessions.reach(id, 'completed');
    await sessions.prompt(id, 'cat note; exit 3');
    const second = await sessions.stream(id).end();
    expect(second.output('stdout')).toBe('out\nkept\n');
    expect(second.events.at(-1)).toMatchObject({ type: 'exit', code: 3 });
  });
});
