import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser, Page } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { openBrowser, signIn } from './support/console-page.js';

describeWith(['chromium', 'sandboxes'], 'the keyboard alone', () => {
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

  /** Whether the element that has the focus is within one that the selector finds. */
  const focusIn = (page: Page, selector: string): Promise<boolean> =>
    page.evaluate((within) => document.activeElement?.closest(within) !== null, selector);
  const tabUntil = (page: Page, selector: string): Promise<unknown> =>
    eventually(async () => {
      if (await focusIn(page, selector)) return true;
      await page.keyboard.press('Tab');
      return undefined;
    }, `the focus to be in ${selector}`);

  it('gets into a terminal, scrolls it, and leaves it', async () => {
    const id = await sessions.completed('seq 500');
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}`);
    const screen = page.locator('.xterm-rows');
    await screen.getByText('500').waitFor();
    await tabUntil(page, '.session-terminal');
    await page.keyboard.press('Home');
    await screen.getByText('1', { exact: true }).waitFor();
    await page.keyboard.press('PageDown');
    await screen.getByText('1', { exact: true }).waitFor({ state: 'detached' });
    await page.keyboard.press('End');
    await screen.getByText('500').waitFor();
    await page.keyboard.press('Tab');
    expect(await focusIn(page, '.session-terminal')).toBe(false);
    await page.keyboard.press('Shift+Tab');
    expect(await focusIn(page, '.session-terminal')).toBe(true);
    // The keys of the page count here, too.
    await page.keyboard.press('1');
    await page.waitForURL('**?view=transcript');
    await page.goBack();
    await page.waitForURL(`**/sessions/${id}`);
    await screen.getByText('500').waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog').getByText('This help').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('Escape');
    await page.waitForURL('**/console/');
    expect(faults).toEqual([]);
    await close();
  });

  it('prompts and terminates, and is told why something is not possible', async () => {
    const id = await sessions.completed();
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}`);
    await tabUntil(page, '.prompt-box textarea');
    await page.keyboard.type('echo "by keyboard"; sleep 600');
    await page.keyboard.press('Control+Enter');
    await page.locator('.xterm-rows').getByText('by keyboard').waitFor();
    await page.locator('.session-header .status.running').waitFor();
    const remove = page.getByRole('button', { name: 'Delete' });
    await remove.focus();
    await page.keyboard.press('Enter');
    const notice = page.getByRole('status').getByText('Terminate the session first');
    await notice.waitFor();
    expect(await page.getByRole('dialog').count()).toBe(0);
    await page.keyboard.press('Shift+Tab');
    await notice.waitFor({ state: 'detached' });
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByText('Terminate this session?').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect((await sessions.get(id)).status).toBe('running');
    await page.keyboard.press('Enter');
    await tabUntil(page, 'dialog .danger');
    await page.keyboard.press('Enter');
    await page.locator('.session-header .status.terminated').waitFor();
    expect(faults).toEqual([]);
    await close();
  });
});
