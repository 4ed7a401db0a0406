import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser, Page } from 'playwright-core';
import { HttpClient } from '../support/http-client.js';
import { describeWith } from '../support/requirements.js';
import { query, type Service, type TestUser } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { seriousProblems } from './support/axe.js';
import { openBrowser, overflow, signIn } from './support/console-page.js';

/** How many turns run at a time. */
const SLOTS = 2;
const VIEWS = ['workers', 'queue', 'sandboxes', 'users', 'tokens'];

describeWith(['chromium', 'sandboxes'], "operators' pages", () => {
  let service: Service;
  let browser: Browser;
  let operator: TestUser & { url: string };
  let sessions: SessionsOf;
  beforeAll(async () => {
    service = await startSessionService({ WORKER_CONCURRENCY: String(SLOTS) });
    operator = { ...(await service.createUser()), url: service.url };
    await query(service.databaseUrl, 'UPDATE users SET operator = true, name = $2 WHERE id = $1', [
      operator.userId,
      'olga',
    ]);
    await query(service.databaseUrl, 'UPDATE users SET name = $2 WHERE id = $1', [
      service.userId,
      'alice',
    ]);
    sessions = new SessionsOf(service, service);
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await leaveNothing(service, [sessions]);
    await service.stop();
  });

  const row = (page: Page, text: string) => page.locator('tbody tr').filter({ hasText: text });

  it('are not there for others: no link, no page, no request', async () => {
    const { page, faults, open, close } = await signIn(browser, service);
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    expect(await page.getByRole('link', { name: 'System' }).count()).toBe(0);
    for (const view of ['', ...VIEWS]) {
      await open(`/system/${view}`);
      await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
    }
    expect(asked.filter((path) => path.includes('operator'))).toEqual([]);
    expect(faults).toEqual([]);
    await close();
  });

  it('show the worker, and say so where there is nothing', async () => {
    const { page, faults, open, close } = await signIn(browser, operator);
    await page.getByRole('link', { name: 'System' }).click();
    await page.getByRole('heading', { name: 'System' }).waitFor();
    await page.getByText('✓ ready').waitFor();
    await page.getByRole('cell', { name: `0 of ${SLOTS}` }).waitFor();
    await page.getByRole('link', { name: 'Queue' }).click();
    await page.getByText('Nobody waits').waitFor();
    expect(page.url()).toBe(`${service.url}/console/system/queue`);
    await open('/system/sandboxes?state=idle');
    await page.getByText('No sandbox is idle').waitFor();
    await page.getByLabel('State').selectOption('');
    await page.goBack();
    await page.getByText('No sandbox is idle').waitFor();
    expect(faults).toEqual([]);
    await close();
  });

  it('show who waits, and terminate a session', async () => {
    const ids: string[] = [];
    for (let index = 0; index <= SLOTS; index += 1) {
      ids.push(await sessions.create('sleep 600 # a-secret-of-the-user'));
    }
    const last = ids.at(-1) ?? '';
    const { page, faults, open, close } = await signIn(browser, operator);
    await open('/system/queue');
    const waiting = row(page, last.slice(0, 8));
    await waiting.getByText('Waiting for a free slot').waitFor();
    expect(await waiting.textContent()).toContain('alice');
    expect(await page.content()).not.toContain('a-secret-of-the-user');
    await waiting.getByRole('button', { name: 'Terminate' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    expect((await sessions.get(last)).status).toBe('pending');
    await waiting.getByRole('button', { name: 'Terminate' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Terminate' }).click();
    await page.getByText('Nobody waits').waitFor();
    expect((await sessions.get(last)).status).toBe('terminated');
    expect(faults).toEqual([]);
    await close();
    await sessions.clear();
  });

  it('show sandboxes, and destroy an idle one', async () => {
    const id = await sessions.completed();
    const { page, faults, open, close } = await signIn(browser, operator);
    await open('/system/sandboxes');
    const idle = row(page, id.slice(0, 8)).filter({ hasText: 'idle' });
    await idle.getByRole('button', { name: 'Destroy' }).click();
    await page.getByRole('dialog').getByText('All files in it are lost').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Destroy' }).click();
    await row(page, id.slice(0, 8)).waitFor({ state: 'detached' });
    expect((await sessions.http.get(`/sessions/${id}/files`)).status).toBe(409);
    expect(faults).toEqual([]);
    await close();
  });

  it('create a user, issue a token, show it once, and revoke it', async () => {
    const { page, faults, open, close } = await signIn(browser, operator);
    await open('/system/users');
    await row(page, 'olga').getByText('operator').waitFor();
    await page.getByRole('button', { name: 'New user' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('uma');
    await dialog.getByLabel('Concurrent sessions').fill('7');
    await dialog.getByRole('button', { name: 'Create the user' }).click();
    await row(page, 'uma').getByRole('cell', { name: '7', exact: true }).waitFor();

    await row(page, 'uma').getByRole('button', { name: 'Issue a token' }).click();
    await dialog.getByLabel('What it is for').fill('laptop');
    await dialog.getByRole('button', { name: 'Issue the token' }).click();
    const token = (await dialog.locator('code').textContent()) ?? '';
    expect(token).toMatch(/^ast_/);
    await dialog.getByRole('button', { name: 'I have stored it' }).click();
    await dialog.waitFor({ state: 'detached' });
    expect(await page.content()).not.toContain(token);
    const uma = new HttpClient(service.url, token);
    expect((await uma.get('/agents')).status).toBe(200);

    await row(page, 'uma').getByRole('link', { name: 'Tokens' }).click();
    await page.getByText('Tokens of uma').waitFor();
    await row(page, 'laptop').getByText('valid').waitFor();
    expect(await page.content()).not.toContain(token);
    await row(page, 'laptop').getByRole('button', { name: 'Revoke' }).click();
    await dialog.getByRole('button', { name: 'Revoke' }).click();
    await row(page, 'laptop').getByText('revoked').waitFor();
    await eventually(async () => (await uma.get('/agents')).status === 401, 'the token to end');
    await page.reload();
    await page.getByText('Tokens of uma').waitFor();
    expect(faults).toEqual([]);
    await close();
  });

  it('show why the service refuses', async () => {
    const { page, open, close } = await signIn(browser, operator);
    await open('/system/users');
    await page.getByRole('button', { name: 'New user' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('alice');
    await dialog.getByRole('button', { name: 'Create the user' }).click();
    await dialog.getByRole('alert').getByText('There already is a user "alice"').waitFor();
    await dialog.getByLabel('Name').fill('anna');
    await dialog.getByRole('button', { name: 'Create the user' }).click();
    await row(page, 'anna').waitFor();
    await close();
  });

  it('load more where there is more', async () => {
    await query(
      service.databaseUrl,
      `INSERT INTO users (name) SELECT 'user number ' || n FROM generate_series(1, 120) n`,
    );
    const { page, open, close } = await signIn(browser, operator);
    await open('/system/users');
    await row(page, 'olga').waitFor();
    expect(await page.locator('tbody tr').count()).toBe(50);
    await page.getByRole('button', { name: 'Load more' }).click();
    await eventually(async () => (await page.locator('tbody tr').count()) === 100, '100 users');
    await page.getByRole('button', { name: 'Load more' }).click();
    await row(page, 'user number 120').waitFor();
    await page.getByRole('button', { name: 'Load more' }).waitFor({ state: 'detached' });
    await query(service.databaseUrl, `DELETE FROM users WHERE name LIKE 'user number %'`);
    await close();
  });

  it('have no serious problem of accessibility, in light and dark, wide and narrow', async () => {
    const id = await sessions.completed();
    for (const colorScheme of ['light', 'dark'] as const) {
      for (const width of [1280, 390]) {
        const { page, faults, open, close } = await signIn(browser, operator, {
          colorScheme,
          viewport: { width, height: 800 },
        });
        for (const view of VIEWS) {
          await open(`/system/${view}`);
          await page.locator('table, .empty').first().waitFor();
          if (view === 'sandboxes') await row(page, id.slice(0, 8)).waitFor();
          const found = await seriousProblems(page);
          expect([view, colorScheme, width, found]).toEqual([view, colorScheme, width, []]);
          expect([view, width, await overflow(page)]).toEqual([view, width, 0]);
        }
        expect(faults).toEqual([]);
        await close();
      }
    }
  });
});
