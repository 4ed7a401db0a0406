import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { openBrowser, signIn } from './support/console-page.js';

const MESSAGE = '{"type":"assistant","message":{"content":[{"type":"text","text":"half a line"}]}}';

/** Prints the beginning of a line, and its end once the file `go` is there. */
const inTwo = (line: string): string => {
  const at = line.indexOf('half') + 2;
  return `printf '%s' '${line.slice(0, at)}'
until [ -e go ]; do sleep 0.1; done
printf '%s\\nanother line\\n' '${line.slice(at)}'
until [ -e end ]; do sleep 0.1; done`;
};

describeWith(['chromium', 'sandboxes'], 'the page of a session after an interruption', () => {
  let service: Service;
  let browser: Browser;
  let sessions: SessionsOf;
  beforeAll(async () => {
    service = await startSessionService({ STALE_AFTER_SECONDS: '1' });
    sessions = new SessionsOf(service, service);
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await leaveNothing(service, [sessions]);
    await service.stop();
  });

  const touch = (id: string, file: string) =>
    sessions.http.send('PUT', `/sessions/${id}/files/content?path=${file}`, undefined, {
      raw: 'x',
      headers: { 'content-type': 'application/octet-stream' },
    });

  it.each([
    ['a runtime', 'anthropic', MESSAGE, '.entry.text'],
    ['a script', 'shell', 'half a line', '.entry.raw'],
  ])('shows a line of %s in one piece', async (_name, provider, line, entry) => {
    const id = await sessions.create(inTwo(line));
    await sessions.reach(id, 'running');
    await query(service.databaseUrl, 'UPDATE sessions SET provider = $2 WHERE id = $1', [
      id,
      provider,
    ]);
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}?view=transcript`);
    const notices = page.getByText('still waiting');
    // The second one comes on a further connection.
    await notices.nth(1).waitFor();
    expect((await touch(id, 'go')).status).toBeLessThan(300);
    await page.locator('.entry.raw').getByText('another line').waitFor();
    const shown = await page.locator('.virtual-item').allTextContents();
    expect(shown.filter((text) => text.includes('half a line'))).toHaveLength(1);
    expect(
      await page
        .locator(entry)
        .filter({ hasText: /^\s*half a line\s*$/ })
        .count(),
    ).toBe(1);
    // Nothing but the line that came after it is left for an entry of its own.
    const raw = await page.locator('.entry.raw').allTextContents();
    expect(raw.map((text) => text.trim()).filter((text) => text.includes('another'))).toEqual([
      'another line',
    ]);
    expect(faults).toEqual([]);
    await touch(id, 'end');
    await close();
  });

  it('shows no error any more once its stream works again', async () => {
    const id = await sessions.create('echo begun; until [ -e end ]; do sleep 0.1; done');
    const { page, open, close } = await signIn(browser, service);
    await page.route('**/stream', (route) =>
      route.fulfill({ status: 404, json: { detail: 'Lost on the way' } }),
    );
    await open(`/sessions/${id}`);
    const box = page.getByRole('alert').getByText('Lost on the way');
    await box.waitFor();
    await page.unroute('**/stream');
    await page.locator('.xterm-rows').getByText('begun').waitFor();
    await box.waitFor({ state: 'detached' });
    await touch(id, 'end');
    await close();
  });

  it('shows no refusal of a prompt any more once another one is written', async () => {
    const id = await sessions.completed();
    const { page, open, close } = await signIn(browser, service);
    await page.route('**/prompt', (route) =>
      route.fulfill({ status: 429, json: { detail: 'Too many at the moment' } }),
    );
    await open(`/sessions/${id}`);
    const prompt = page.getByLabel('Prompt for the next turn');
    await prompt.fill('true');
    await page.keyboard.press('Control+Enter');
    const box = page.getByRole('alert').getByText('Too many at the moment');
    await box.waitFor();
    await prompt.fill('echo again');
    await box.waitFor({ state: 'detached' });
    await close();
  });

  it('shows one number of tokens, in the list and beside it', async () => {
    const id = await sessions.completed();
    await query(
      service.databaseUrl,
      `INSERT INTO usage_sessions (session_id, requests, input_tokens, output_tokens,
         cache_read_input_tokens, cache_creation_input_tokens)
       VALUES ($1, 3, 100, 20, 3000, 400)`,
      [id],
    );
    const { page, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}`);
    await page.locator('.session-header .facts').getByText('3.5K tokens').waitFor();
    const row = page.locator('.session-list a[aria-current] .why');
    await row.getByText('3.5K tokens').waitFor();
    await close();
  });
});

describeWith(['chromium'], 'the page of a new session', () => {
  it('says that the agent of its address does not exist, and takes no other one', async () => {
    const service = await startSessionService();
    const browser = await openBrowser();
    try {
      const sessions = new SessionsOf(service, service);
      const agent = await sessions.createAgent({ name: 'the first one' });
      const { page, faults, open, close } = await signIn(browser, service);
      await open('/sessions/new?agent=00000000-0000-4000-8000-000000000000');
      await page.getByRole('alert').getByText('There is no agent 00000000-0000').waitFor();
      const choice = page.getByLabel('Agent', { exact: true });
      expect(await choice.inputValue()).toBe('');
      const start = page.getByRole('button', { name: 'Start the session' });
      expect(await start.isDisabled()).toBe(true);
      await choice.selectOption(agent);
      expect(await page.getByRole('alert').count()).toBe(0);
      expect(await start.isDisabled()).toBe(false);
      await open(`/sessions/new?agent=${agent}`);
      await page.locator('option', { hasText: 'the first one' }).waitFor({ state: 'attached' });
      expect(await choice.inputValue()).toBe(agent);
      expect(faults).toEqual([]);
      await close();
    } finally {
      await browser.close();
      await service.stop();
    }
  });
});
