import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser, Page } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { cuttableNetwork, openBrowser, signIn } from './support/console-page.js';

const CUTS = 20;

describeWith(['chromium', 'sandboxes'], 'a live view', () => {
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

  it('misses nothing and repeats nothing, however often its connection is cut', async () => {
    const network = await cuttableNetwork(service);
    const { page, open, close } = await signIn(browser, service, { address: network.url });
    try {
      const id = await sessions.create(
        'for i in $(seq 100000); do echo "line $i."; sleep 0.02; done',
      );
      const cursors: string[] = [];
      page.on('response', (response) => {
        if (!response.url().endsWith('/stream')) return;
        cursors.push(response.request().headers()['last-event-id'] ?? '');
      });
      await open(`/sessions/${id}?view=raw`);
      for (let cuts = 0; cuts < CUTS; cuts += 1) {
        await eventually(() => cursors.length > cuts, `connection ${cuts + 1}`);
        const shown = await eventCount(page);
        await eventually(async () => (await eventCount(page)) > shown, 'events to arrive');
        network.cut();
      }
      await eventually(() => cursors.length > CUTS, 'the last connection');
      expect((await sessions.get(id)).status).toBe('running');
      // Each resumed where the one before had ended, instead of from the beginning.
      expect(new Set(cursors).size).toBe(CUTS + 1);
      await sessions.http.post(`/sessions/${id}/terminate`);
      await page.locator('.session-header .status.terminated').waitFor();
      const sent = (await sessions.stream(id).end()).events;
      await eventually(async () => (await eventCount(page)) === sent.length, 'all events');
      const rows = await rowsOnScreen(page);
      expect(rows).toEqual(sent.map((event) => JSON.stringify(event)));
    } finally {
      await close();
      await network.stop();
    }
  });

  it('says so when its connection stays away, and goes on where it was', async () => {
    const network = await cuttableNetwork(service);
    const { page, open, close } = await signIn(browser, service, { address: network.url });
    try {
      const id = await sessions.create(
        'for i in $(seq 100000); do echo "line $i."; sleep 0.02; done',
      );
      await open(`/sessions/${id}?view=raw`);
      await eventually(async () => (await eventCount(page)) > 10, 'events to arrive');
      network.lose();
      const notice = page.getByRole('status').getByText('The connection is lost');
      await notice.waitFor();
      const shown = await eventCount(page);
      network.restore();
      await notice.waitFor({ state: 'detached' });
      await eventually(async () => (await eventCount(page)) > shown, 'events to arrive again');
      await sessions.http.post(`/sessions/${id}/terminate`);
      await page.locator('.session-header .status.terminated').waitFor();
      const sent = (await sessions.stream(id).end()).events;
      await eventually(async () => (await eventCount(page)) === sent.length, 'all events');
      expect(await rowsOnScreen(page)).toEqual(sent.map((event) => JSON.stringify(event)));
    } finally {
      await close();
      await network.stop();
    }
  });

  it('follows the end only while the reader is there', async () => {
    const id = await sessions.create(
      'for i in $(seq 100000); do echo "line $i."; sleep 0.02; done',
    );
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}?view=raw`);
    await eventually(async () => (await eventCount(page)) > 100, 'a full screen');
    const box = page.locator('.virtual-box');
    const scrolled = (): Promise<number> => box.evaluate((element) => element.scrollTop);
    const before = await scrolled();
    await eventually(async () => (await scrolled()) > before, 'the view to follow');
    await box.hover();
    await page.mouse.wheel(0, -400);
    const button = page.getByRole('button', { name: /\d+ new/ });
    await button.waitFor();
    const stays = await scrolled();
    const count = await eventCount(page);
    await eventually(async () => (await eventCount(page)) > count + 20, 'more events');
    expect(await scrolled()).toBe(stays);
    await button.click();
    await eventually(async () => (await scrolled()) > stays, 'the view to follow again');
    await button.waitFor({ state: 'hidden' });
    expect(faults).toEqual([]);
    await close();
  });
});

/** What the raw view says about how many events it has. */
async function eventCount(page: Page): Promise<number> {
  const text = await page.locator('.raw-events .toolbar .number').first().textContent();
  return Number(/[\d,]+/.exec(text ?? '')?.[0].replaceAll(',', '') ?? 0);
}

/** The JSON of all rows of the raw view, in order, as a reader sees them who scrolls from its start to its end. */
async function rowsOnScreen(page: Page): Promise<string[]> {
  return page.evaluate(async () => {
    const box = document.querySelector('.virtual-box');
    if (!box) throw new Error('no list');
    const rows = new Map<number, string>();
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    for (let top = 0; top < box.scrollHeight; top += box.clientHeight / 2) {
      box.scrollTop = top;
      await frame();
      await frame();
      for (const item of box.querySelectorAll<HTMLElement>('.virtual-item')) {
        const json = item.querySelector('.argument')?.textContent ?? '';
        rows.set(Number(item.dataset['index']), json);
      }
    }
    return [...rows].sort(([a], [b]) => a - b).map(([, json]) => json);
  });
}
