import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import { eventually, SessionsOf, startSessionService } from '../support/sessions.js';
import { openBrowser, signIn } from './support/console-page.js';

/** More than are read again and again, and more than one page behind these. */
const SESSIONS = 450;

describeWith(['chromium'], 'a long list of sessions', () => {
  let service: Service;
  let browser: Browser;
  let agent: string;
  beforeAll(async () => {
    service = await startSessionService();
    browser = await openBrowser();
    agent = await new SessionsOf(service, service).createAgent({ name: 'the busy one' });
  });
  afterAll(async () => {
    await browser?.close();
    await service.stop();
  });

  /** Adds sessions that have ended long ago, the newest first. @returns their ids */
  const add = async (many: number): Promise<string[]> => {
    const rows = await query<{ id: string }>(
      service.databaseUrl,
      `WITH made AS (
         INSERT INTO sessions (user_id, agent_id, agent_version, provider, status, timeout,
           resources, exit_code, created_at)
         SELECT $1, $2, 1, 'shell', 'completed', 3600, '[]', 0,
           now() - interval '1 day' - n * interval '1 minute'
         FROM generate_series(1, $3) n
         RETURNING id, created_at),
       turned AS (
         INSERT INTO turns (session_id, turn_number, prompt, timeout, status, exit_code,
           started_at, ended_at)
         SELECT id, 1, 'echo hi', 3600, 'completed', 0, now(), now() FROM made)
       SELECT id FROM made ORDER BY created_at DESC`,
      [service.userId, agent, many],
    );
    return rows.map(({ id }) => id);
  };

  it('is read to its end, while its beginning stays live', async () => {
    const ids = await add(SESSIONS);
    const { page, faults, open, close } = await signIn(browser, service);
    await open('/');
    const rows = page.locator('.session-list a');
    const more = page.getByRole('button', { name: 'Load more' });
    const grows = (count: number) =>
      eventually(async () => (await rows.count()) === count, `${count} sessions`);
    await grows(50);
    const oldest = ids.at(-1) ?? '';
    await page.getByRole('searchbox').fill(oldest);
    await page.getByText('Only the newest 50 were searched').waitFor();
    await page.getByRole('searchbox').fill('');
    for (const count of [100, 200, 400, SESSIONS]) {
      await more.click();
      await grows(count);
    }
    expect(await more.count()).toBe(0);
    const shown = await rows.evaluateAll((links) =>
      links.map((link) => link.getAttribute('href')?.split('/').at(-1)),
    );
    expect(shown).toEqual(ids);

    // A new one above, a change at the beginning, and nothing lost behind it.
    await query(service.databaseUrl, `UPDATE sessions SET exit_code = 7 WHERE id = $1`, [ids[1]]);
    const [newest = ''] = await query<{ id: string }>(
      service.databaseUrl,
      `UPDATE sessions SET created_at = now() WHERE id = $1 RETURNING id`,
      [oldest],
    ).then((found) => found.map(({ id }) => id));
    await rows.first().getByText(newest.slice(0, 8)).waitFor();
    await rows.getByText('Exit code 7').waitFor();
    await page.getByRole('searchbox').fill(ids.at(-2) ?? '');
    await grows(1);
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/console/sessions/${ids.at(-2)}?q=*`);
    expect(faults).toEqual([]);
    await close();
  });

  it('says which agent it shows, also one that is archived', async () => {
    await add(1);
    await service.http.post(`/agents/${agent}/archive`);
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/?agent=${agent}`);
    await page.locator('.session-list a').first().waitFor();
    const filter = page.getByLabel('Agent', { exact: true });
    expect(await filter.inputValue()).toBe(agent);
    await page.locator('.session-list a').first().getByText('the busy one').waitFor();
    expect(faults).toEqual([]);
    await close();
  });
});
