import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import {
  leaveNothing,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';
import { openBrowser, signIn } from './support/console-page.js';

describeWith(['chromium', 'sandboxes'], 'a session that waits', () => {
  let service: Service;
  let browser: Browser;
  let sessions: SessionsOf;
  beforeAll(async () => {
    service = await startSessionService({ WORKER_CONCURRENCY: '1', SESSION_LIMIT: '3' });
    sessions = new SessionsOf(service, service);
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await leaveNothing(service, [sessions]);
    await service.stop();
  });

  it('says where it is in the queue, in the list and on its page, and why no other is accepted', async () => {
    const first = await sessions.create('sleep 600');
    await sessions.reach(first, 'running');
    const [second, third] = [await sessions.create('echo 2'), await sessions.create('echo 3')];
    const { page, faults, open, close } = await signIn(browser, service);
    const row = (id: string) => page.locator('.session-list a').filter({ hasText: id.slice(0, 8) });
    await row(second).getByText('number 1 in the queue').waitFor();
    await row(third).getByText('number 2 in the queue').waitFor();
    await open(`/sessions/${third}`);
    const waiting = page.locator('.waiting');
    await waiting.getByText('Waiting for a free slot (1 of 1 in use): number 2').waitFor();
    await page.getByText('A turn is waiting already').waitFor();

    await page.getByRole('link', { name: 'New session' }).click();
    await page.getByLabel(/^Prompt/).fill('echo 4');
    await page.getByRole('button', { name: 'Start the session' }).click();
    await page.getByRole('alert').getByText(/limit/i).waitFor();
    expect(await page.getByLabel(/^Prompt/).inputValue()).toBe('echo 4');

    await open(`/sessions/${third}`);
    await sessions.http.post(`/sessions/${first}/terminate`);
    await page.locator('.session-header .status.completed').waitFor();
    await waiting.waitFor({ state: 'detached' });
    // The refused request is an error of the browser's console, too.
    expect(faults.filter((fault) => !fault.includes('the server responded with'))).toEqual([]);
    await close();
  });
});

describeWith(['chromium', 'sandboxes with software'], 'the build of an environment', () => {
  let service: Service;
  let browser: Browser;
  let sessions: SessionsOf;
  beforeAll(prepareSoftware, ROOTFS_TIMEOUT_MS);
  beforeAll(async () => {
    service = await startSessionService({ BUILD_ON_SAVE: 'on' });
    sessions = new SessionsOf(service, service);
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await leaveNothing(service, [sessions]);
    await service.stop();
  });

  it('is shown with what failed, until a change mends it', async () => {
    const { page, faults, open, close } = await signIn(browser, service);
    await open('/environments/new');
    await page.getByLabel('Name', { exact: true }).fill('with a script');
    await page.getByLabel('Setup script').fill('echo "<b>broken</b>"; cat /nothing/here');
    await page.getByRole('button', { name: 'Create the environment' }).click();
    const build = page.locator('.waiting').filter({ hasText: 'Build:' });
    await build.getByText('failed', { exact: true }).waitFor();
    await build.getByText('failed command: cat /nothing/here').waitFor();
    expect(await build.locator('b').count()).toBe(0);
    await page.getByRole('link', { name: 'Edit' }).click();
    await page.getByLabel('Setup script').fill('true');
    await page.getByRole('button', { name: 'Save as version 2' }).click();
    await build.getByText('ready').waitFor();
    expect(faults).toEqual([]);
    await close();
  });

  it('is what its session waits for', async () => {
    const environment = await sessions.createEnvironment({ setup_script: 'sleep 5' });
    const id = await sessions.create('echo done', { environment_id: environment });
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}`);
    await page
      .locator('.waiting')
      .getByText(/environment/i)
      .waitFor();
    await page.locator('.session-header .status.completed').waitFor();
    await page.locator('.waiting').waitFor({ state: 'detached' });
    expect(faults).toEqual([]);
    await close();
  });
});
