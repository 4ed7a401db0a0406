import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { FakeSprites } from '../support/sprites/fake-sprites.js';

describeWith(['root', 'mount namespaces'], 'a session in a sprite', () => {
  const fake = new FakeSprites();
  let service: Service;
  let sessions: SessionsOf;
  beforeAll(async () => {
    await fake.start();
    service = await startSessionService({
      SANDBOX_DRIVER: 'sprites',
      SPRITES_TOKEN: fake.token,
      SPRITES_BASE_URL: fake.url,
    });
    sessions = new SessionsOf(service, service);
  });
  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await eventually(() => fake.sprites.size === 0, 'no sprite to be left');
  });
  // Hooks of their own, so that service and fake stop whatever fails before.
  afterAll(() => service.stop());
  afterAll(() => fake.stop());

  it('runs from POST to exit, and a second turn finds its files', async () => {
    const id = await sessions.create('echo kept > note; echo out; exit 0');
    const first = await sessions.stream(id).end();
    expect(first.output()).toBe('out\n');
    expect(first.events.at(-1)).toMatchObject({ type: 'exit', code: 0 });
    await sessions.reach(id, 'completed');
    await sessions.prompt(id, 'cat note; exit 3');
    const second = await sessions.stream(id).end();
    expect(second.output()).toBe('out\nkept\n');
    expect(second.events.at(-1)).toMatchObject({ type: 'exit', code: 3 });
  });
});
