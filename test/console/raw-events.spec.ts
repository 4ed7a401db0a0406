import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { openBrowser, signIn } from './support/console-page.js';

describeWith(['chromium', 'sandboxes', 'curl'], 'raw events', () => {
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

  it('give the command that streams from there', async () => {
    const id = await sessions.completed('for n in 1 2 3; do echo "line $n."; sleep 0.5; done');
    const { events } = await sessions.stream(id).end();
    const { page, faults, open, close } = await signIn(browser, service, {
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    await open(`/sessions/${id}?view=raw`);
    /** What the copied command prints. */
    const streamed = async (): Promise<unknown[]> => {
      const command = await page.evaluate(() => navigator.clipboard.readText());
      const { stdout } = await promisify(execFile)('sh', ['-c', command], {
        env: { ...process.env, TOKEN: service.token },
      });
      return [...stdout.matchAll(/^data: (.*)$/gm)].map(([, json = '']) => JSON.parse(json));
    };
    await page.getByRole('button', { name: 'Copy as curl', exact: true }).click();
    await page.getByText('Copied').waitFor();
    expect(await streamed()).toEqual(events);

    await page.locator('.event').getByText('line 1.').click();
    await page.getByRole('button', { name: 'Copy as curl from here' }).click();
    await page.locator('.event').getByText('Copied').waitFor();
    const first = events.findIndex((event) => JSON.stringify(event).includes('line 1.'));
    // Every connection begins with the same event.
    expect(await streamed()).toEqual([events[0], ...events.slice(first + 1)]);

    // Behind the end comes the end again.
    await page.locator('.event').getByText('line 1.').first().click();
    await page.locator('.event .event-type', { hasText: 'exit' }).click();
    await page.getByRole('button', { name: 'Copy as curl from here' }).click();
    await page.locator('.event').getByText('Copied').waitFor();
    expect(await streamed()).toEqual([events[0], events.at(-1)]);
    expect(faults).toEqual([]);
    await close();
  });

  it('are searched, also while more arrive, and stay open', async () => {
    const id = await sessions.create(
      'for n in $(seq 150); do echo "line $n."; sleep 0.02; done; until [ -e go ]; do sleep 0.1; done; echo "line 77. again"',
    );
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}?view=raw`);
    const search = page.getByLabel('Search the events');
    await search.fill('LINE 77.');
    const rows = page.locator('.event');
    await rows.getByText('line 77.').waitFor();
    await page.getByText(/^1 of \d+ events/).waitFor();
    await rows.locator('.summary').click();
    await rows.locator('.output').waitFor();
    const go = `/sessions/${id}/files/content?path=go`;
    await sessions.http.send('PUT', go, undefined, {
      raw: 'x',
      headers: { 'content-type': 'application/octet-stream' },
    });
    await rows.getByText('line 77. again').first().waitFor();
    await page.getByText(/^2 of \d+ events/).waitFor();
    expect(await rows.count()).toBe(2);
    expect(await rows.locator('.output').count()).toBe(1);
    await search.fill('nowhere');
    await page.getByText('No event contains this').waitFor();
    // Among all events again: the same one is open, and no other.
    await search.fill('');
    const box = page.locator('.virtual-box');
    await box.evaluate((element) => {
      element.scrollTop = 0;
    });
    await eventually(async () => {
      if ((await rows.locator('.output').count()) > 0) return true;
      await box.evaluate((element) => {
        element.scrollTop += element.clientHeight / 2;
      });
      return undefined;
    }, 'the open event to be on screen');
    expect(await rows.locator('.output').textContent()).toContain('line 77.');
    expect(await rows.locator('.output').count()).toBe(1);
    expect(faults).toEqual([]);
    await close();
  });
});
