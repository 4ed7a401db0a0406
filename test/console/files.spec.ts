import { execFile, execFileSync } from 'node:child_process';
import { promisify } from 'node:util';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser, Locator, Page } from 'playwright-core';
import { type GitSessions, startGitSessions } from '../support/git-sessions.js';
import { describeWith } from '../support/requirements.js';
import { seriousProblems } from './support/axe.js';
import { openBrowser, signIn } from './support/console-page.js';

const MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
const HOSTILE_NAME = '\u202egnp.<b onclick=alert(1)>\\"';

/** Changes one file, adds three, one of them binary, and one whose name and content are hostile. */
const WORK = `
cd public
printf 'second\\nand a third line\\n' >README
mkdir -p src/deep
printf 'export const answer = 42;\\n' >src/deep/answer.ts
printf '\\0\\1\\2' >blob.bin
printf '%s\\n' '${MARKUP}' >'${HOSTILE_NAME}'
printf '\\033]0;owned\\007\\033[31mred\\n' >escapes.txt
: >empty.txt`;

describeWith(['chromium', 'sandboxes'], 'files and changes of a session', () => {
  let on: GitSessions;
  let browser: Browser;
  let id: string;
  let folder: string;
  beforeAll(async () => {
    on = await startGitSessions();
    browser = await openBrowser();
    folder = await mkdtemp(join(tmpdir(), 'downloads-'));
    id = await on.sessions.create(WORK, {
      resources: [
        { type: 'git_repository', url: `${on.git.url}/public.git`, mount_path: 'public' },
      ],
    });
    await on.sessions.stream(id).end();
    await on.sessions.reach(id, 'completed');
  });
  afterAll(async () => {
    await browser?.close();
    await rm(folder, { recursive: true, force: true });
    await on.stop();
  });

  it('are a tree with the chosen file beside it', async () => {
    const { page, faults, open, close } = await signIn(browser, on.service);
    await open(`/sessions/${id}?view=files`);
    const tree = page.getByRole('navigation', { name: 'Files' });
    await tree.getByRole('button', { name: 'public' }).click();
    await tree.getByRole('button', { name: 'src' }).click();
    await tree.getByRole('button', { name: 'deep' }).click();
    await tree.getByRole('link', { name: 'answer.ts' }).click();
    const content = page.getByRole('region', { name: 'Content of the file' });
    await content.getByText('export const answer = 42;').waitFor();
    expect(new URL(page.url()).searchParams.get('file')).toBe('public/src/deep/answer.ts');
    await page.reload();
    await content.getByText('export const answer = 42;').waitFor();
    await tree.getByRole('link', { name: 'answer.ts' }).waitFor();
    await page.goBack();
    await page.getByText('Choose a file to read it here').waitFor();
    await tree.getByRole('link', { name: 'blob.bin' }).click();
    await page.getByText('This is no text').waitFor();
    expect(await saved(page, page.getByRole('link', { name: 'Download' }))).toEqual(
      Buffer.from([0, 1, 2]),
    );
    await tree.getByRole('link', { name: 'empty.txt' }).click();
    await page.getByText('The file is empty').waitFor();
    const archive = await saved(page, tree.getByRole('link', { name: 'tar.gz' }));
    const names = execFileSync('tar', ['-tz'], { input: archive, encoding: 'utf8' });
    expect(names).toContain('public/src/deep/answer.ts');
    expect(await seriousProblems(page)).toEqual([]);
    expect(faults).toEqual([]);
    await close();
  });

  it('show hostile names and contents as text', async () => {
    const { page, faults, open, close } = await signIn(browser, on.service);
    await open(
      `/sessions/${id}?${new URLSearchParams({ view: 'files', file: `public/${HOSTILE_NAME}` })}`,
    );
    await page.locator('.file-text').getByText(MARKUP).waitFor();
    expect(await page.locator('.file-path').textContent()).toContain('⟨U+202E⟩gnp.<b onclick');
    await open(`/sessions/${id}?view=files&file=public/escapes.txt`);
    await page.locator('.file-text').getByText('⟨ESC⟩]0;owned').waitFor();
    await open(`/sessions/${id}?view=changes`);
    await page.locator('.diff .line').getByText(MARKUP).waitFor();
    expect(await page.locator('.view :is(img, script, b)').count()).toBe(0);
    expect(await page.title()).toMatch(/^Session /);
    expect(faults).toEqual([]);
    await close();
  });

  it('are a diff, whose download is the patch that git applies', async () => {
    const { page, faults, open, close } = await signIn(browser, on.service);
    await open(`/sessions/${id}?view=changes`);
    const readme = page.locator('figure[data-path="README"]');
    await readme.locator('tr.added').getByText('and a third line').waitFor();
    await page.locator('figure[data-path="blob.bin"]').getByText('A binary file').waitFor();
    await page.getByText(/^6 files changed/).waitFor();
    // git quotes this name in the patch, and the list does not.
    const hostile = page.locator('figure', { hasText: MARKUP });
    expect(await hostile.getAttribute('data-path')).toBe(HOSTILE_NAME);
    await page.getByLabel('Compared with the clone:').selectOption('At the end of turn 1');
    await page.waitForURL('**?view=changes&turn=1');
    await readme.locator('tr.added').getByText('and a third line').waitFor();
    const patch = await saved(page, page.getByRole('link', { name: 'Download the patch' }));
    const clone = join(folder, 'clone');
    // The git server is in this process.
    await promisify(execFile)('git', ['clone', '--quiet', `${on.git.url}/public.git`, clone]);
    execFileSync('git', ['apply'], { cwd: clone, input: patch });
    expect(await readFile(join(clone, 'README'), 'utf8')).toBe('second\nand a third line\n');
    expect(await seriousProblems(page)).toEqual([]);
    expect(faults).toEqual([]);
    await close();
  });

  it('say what to do when there are none, or not any more', async () => {
    const other = await on.sessions.completed('echo nothing');
    const { page, open, close } = await signIn(browser, on.service);
    await open(`/sessions/${other}?view=changes`);
    await page.getByText('This session has no repository').waitFor();
    await page.getByRole('link', { name: 'Files' }).click();
    await page.getByText('The workspace is empty').waitFor();
    await on.sessions.http.post(`/sessions/${other}/terminate`);
    await open(`/sessions/${other}?view=files`);
    await page
      .getByRole('alert')
      .getByText('Session backend is no longer available; start a new session.')
      .waitFor();
    await close();
  });

  /** What the browser saves when the link is clicked. */
  async function saved(page: Page, link: Locator): Promise<Buffer> {
    const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
    const path = join(folder, download.suggestedFilename());
    await download.saveAs(path);
    return readFile(path);
  }
});
