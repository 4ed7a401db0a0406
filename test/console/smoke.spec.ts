import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { openBrowser, signIn } from './support/console-page.js';

describeWith(['chromium', 'sandboxes'], 'a session in the console', () => {
  let service: Service;
  let browser: Browser;
  let sessions: SessionsOf;
  beforeAll(async () => {
    service = await startSessionService();
    sessions = new SessionsOf(service, service);
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await leaveNothing(service, [sessions]);
    await service.stop();
  });

  it('is shown live, from its first words to its exit', async () => {
    const id = await sessions.create(
      'echo first words; until [ -e go ]; do sleep 0.1; done; echo last words',
    );
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}`);
    const screen = page.locator('.xterm-rows');
    await screen.getByText('first words').waitFor();
    expect(await page.locator('.session-header .status').textContent()).toContain('running');
    const { status } = await sessions.http.send(
      'PUT',
      `/sessions/${id}/files/content?path=go`,
      undefined,
      { raw: 'go', headers: { 'content-type': 'application/octet-stream' } },
    );
    expect(status).toBe(200);
    await screen.getByText('last words').waitFor();
    await page.locator('.session-header .status.completed').waitFor();
    expect(faults).toEqual([]);
    await close();
  });
});
