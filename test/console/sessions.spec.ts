import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser, Page } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { seriousProblems } from './support/axe.js';
import { openBrowser, overflow, signIn } from './support/console-page.js';

const FIXTURES = join(process.cwd(), 'test', 'console', 'fixtures');

/** What each program's transcript shows of the same conversation; see `fixtures/`. */
const RUNTIMES = [
  ['anthropic', 'Bash'],
  ['openai', 'shell'],
  ['google', 'run_shell_command'],
  ['opencode', 'bash'],
] as const;

describeWith(['chromium', 'sandboxes'], 'the sessions pages', () => {
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

  it('start a session, show it live, prompt it again, and delete it', async () => {
    const { page, faults, close } = await signIn(browser, service);
    const agent = await sessions.createAgent({ name: 'worker bee' });
    await page.getByRole('link', { name: 'New session' }).click();
    await page.getByLabel('Agent', { exact: true }).selectOption(agent);
    await page.getByLabel(/^Prompt/).fill('echo first words; sleep 2; echo last words');
    await page.getByRole('button', { name: 'Start the session' }).click();
    const screen = page.locator('.xterm-rows');
    await screen.getByText('first words').waitFor();
    expect(await page.locator('.session-header .status').textContent()).toContain('running');
    const remove = page.getByRole('button', { name: 'Delete' });
    expect(await remove.getAttribute('aria-disabled')).toBe('true');
    expect(await remove.getAttribute('title')).toMatch(/Terminate the session first/);
    await screen.getByText('last words').waitFor();
    await page.locator('.session-header .status.completed').waitFor();

    await page.getByLabel('Prompt for the next turn').fill('echo words of the second turn');
    await page.keyboard.press('Control+Enter');
    await screen.getByText('── turn 2 ──').waitFor();
    await screen.getByText('words of the second turn').waitFor();
    await page.locator('.session-header .status.completed').waitFor();
    const address = page.url();

    await page.getByRole('link', { name: 'Turns and usage' }).click();
    await page.getByRole('cell', { name: 'echo words of the second turn' }).waitFor();
    expect(await page.locator('.figures-table tbody tr').count()).toBe(2);
    await page.reload();
    await page.getByRole('cell', { name: 'echo words of the second turn' }).waitFor();
    expect(page.url()).toBe(`${address}?view=turns`);

    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('There are no sessions yet').waitFor();
    expect((await sessions.http.get('/sessions')).body.data).toEqual([]);
    expect(faults).toEqual([]);
    await close();
  });

  it('terminate a session that runs', async () => {
    const id = await sessions.create('echo begun; sleep 600');
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}`);
    await page.locator('.xterm-rows').getByText('begun').waitFor();
    await page.getByRole('button', { name: 'Terminate' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Terminate' }).click();
    await page.locator('.session-header .status.terminated').waitFor();
    await page.getByText('This session was terminated and cannot be continued').waitFor();
    await page.getByRole('link', { name: 'Transcript' }).click();
    await page.getByText('Session terminated').waitFor();
    expect(faults).toEqual([]);
    await close();
  });

  it('filter by the address, move by keyboard, and go back', async () => {
    const failed = await sessions.create('exit 3');
    await sessions.reach(failed, 'failed');
    const completed = await sessions.completed();
    const { page, faults, open, close } = await signIn(browser, service);
    await open('/?status=failed');
    const items = page.locator('.session-list a');
    await items.getByText(failed.slice(0, 8)).waitFor();
    expect(await items.getByText(completed.slice(0, 8)).count()).toBe(0);
    await items.getByText('Exit code 3').waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/console/sessions/${failed}?status=failed`);
    await page.goBack();
    await page.waitForURL('**/console/?status=failed');
    await page.getByLabel('Status').selectOption('completed');
    await items.getByText(completed.slice(0, 8)).waitFor();
    expect(page.url()).toContain('status=completed');
    await page.keyboard.press('Tab');
    await page.keyboard.press('?');
    expect(faults).toEqual([]);
    await close();
  });

  it('show an error in the words of the service, with the id of the request', async () => {
    const { page, open, close } = await signIn(browser, service);
    await open('/sessions/00000000-0000-4000-8000-000000000000');
    await page.getByRole('alert').getByText('Session not found').waitFor();
    expect(await page.getByRole('alert').textContent()).toMatch(/request [0-9a-f-]{36}/);
    await close();
  });

  it.each(RUNTIMES)('show the transcript of %s', async (provider, tool) => {
    const id = await asProvider(provider);
    const { page, faults, open, close } = await signIn(browser, service);
    await open(`/sessions/${id}`);
    const calls = page.locator('.fold.tool');
    await page.getByText('The turn is done').waitFor();
    await calls.nth(2).waitFor();
    expect(await calls.count()).toBe(3);
    const [first, second] = [calls.nth(0), calls.nth(1)];
    expect(await first.locator('strong').textContent()).toBe(tool);
    expect(await first.locator('.argument').textContent()).toContain('ls -la');
    expect(await first.locator('.figures').textContent()).toMatch(/\d B/);
    await first.getByRole('button').first().click();
    await first.getByText('green ok').waitFor();
    await second.getByRole('button').first().click();
    await second.getByText('echo through pipes with a secret of 23 characters').waitFor();
    await page.locator('.entry.text').getByText('I was sent').waitFor();
    // Nothing of what the program printed was left ununderstood.
    expect(await page.locator('.entry.raw').count()).toBe(0);
    expect(await seriousProblems(page)).toEqual([]);
    expect(faults).toEqual([]);
    await close();
  });

  it('have no serious problem of accessibility, in light and dark', async () => {
    const id = await sessions.completed('printf "\\033[31mred\\033[0m\\n"');
    for (const colorScheme of ['light', 'dark'] as const) {
      for (const width of [1280, 390]) {
        const viewport = { width, height: 800 };
        const { page, faults, open, close } = await signIn(browser, service, {
          colorScheme,
          viewport,
        });
        const views = ['terminal', 'transcript', 'files', 'changes', 'raw', 'turns'];
        const addresses = [
          '/',
          '/sessions/new',
          ...views.map((view) => `/sessions/${id}?view=${view}`),
        ];
        for (const address of addresses) {
          await open(address);
          await settled(page);
          expect([address, colorScheme, await seriousProblems(page)]).toEqual([
            address,
            colorScheme,
            [],
          ]);
          expect(await overflow(page)).toBe(0);
        }
        expect(faults).toEqual([]);
        await close();
      }
    }
  });

  /** A session that printed what the program of a provider printed. */
  async function asProvider(provider: string): Promise<string> {
    const lines = await readFile(join(FIXTURES, `${provider}.jsonl`), 'utf8');
    const id = await sessions.completed(`cat <<'LINES'\n${lines}\nLINES`);
    await query(service.databaseUrl, 'UPDATE sessions SET provider = $2 WHERE id = $1', [
      id,
      provider,
    ]);
    return id;
  }
});

/** Waits until nothing is loading any more. */
async function settled(page: Page): Promise<void> {
  await page.locator('h1:visible, h2:visible').first().waitFor();
  await eventually(
    async () => (await page.getByText(/^Loading/).count()) === 0,
    'the page to load',
  );
}
