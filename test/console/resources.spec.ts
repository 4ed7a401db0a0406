import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import { type Service, startService } from '../support/service.js';
import { seriousProblems } from './support/axe.js';
import { openBrowser, overflow, signIn } from './support/console-page.js';

const RIGHT_TO_LEFT = '\u202egnp';

describeWith(['chromium'], 'the pages of agents and environments', () => {
  let service: Service;
  let browser: Browser;
  beforeAll(async () => {
    service = await startService();
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await service.stop();
  });

  it('create an agent, change it, compare its versions, and archive it', async () => {
    const { page, faults, close } = await signIn(browser, service);
    await page.getByRole('link', { name: 'Agents', exact: true }).click();
    await page.getByText('There are no agents yet').waitFor();
    await page.keyboard.press('n');
    await page.getByLabel('Name', { exact: true }).fill('reviewer');
    await page.getByLabel('Provider').selectOption('shell');
    await page.getByLabel('Model').fill('shell/bash');
    await page.getByLabel('System prompt').fill('echo first\necho second');
    await page.getByLabel(/^Labels/).fill('team=growth\nstage=test');
    await page.getByRole('button', { name: 'Create the agent' }).click();
    await page.getByRole('heading', { name: 'reviewer' }).waitFor();
    const id = page.url().split('/').at(-1) ?? '';
    expect((await service.http.get(`/agents/${id}`)).body).toMatchObject({
      name: 'reviewer',
      provider: 'shell',
      system: 'echo first\necho second',
      metadata: { team: 'growth', stage: 'test' },
      version: 1,
    });

    await page.getByRole('link', { name: 'Edit' }).click();
    await page.getByLabel('System prompt').fill('echo first\necho third');
    await page.getByLabel(/^Labels/).fill('team=platform');
    await page.getByRole('button', { name: 'Save as version 2' }).click();
    const prompt = page.locator('figure[data-path="system prompt"]');
    await prompt.locator('tr.removed').getByText('echo second').waitFor();
    await prompt.locator('tr.added').getByText('echo third').waitFor();
    expect((await service.http.get(`/agents/${id}`)).body).toMatchObject({
      metadata: { team: 'platform' },
      name: 'reviewer',
      version: 2,
    });
    await page.getByLabel('Compare').selectOption('version 2');
    await page.getByText('Choose two versions to compare').waitFor();
    expect(page.url()).toContain('from=2');
    await page.goBack();
    await prompt.waitFor();
    expect(await seriousProblems(page)).toEqual([]);

    await page.getByRole('button', { name: 'Archive' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click();
    await page.getByText('■ archived').waitFor();
    expect((await service.http.get('/agents')).body.data).toEqual([]);
    expect(faults).toEqual([]);
    await close();
  });

  it('show what somebody else changed meanwhile, and save on top of it', async () => {
    const { body: agent } = await service.http.post('/agents', {
      name: 'shared',
      provider: 'shell',
      model: 'shell/bash',
      system: 'old',
    });
    const { page, open, close } = await signIn(browser, service);
    await open(`/agents/${agent.id}?view=edit`);
    await page.getByLabel('Name', { exact: true }).fill('renamed here');
    await service.http.put(`/agents/${agent.id}`, { version: 1, system: 'changed elsewhere' });
    await page.getByRole('button', { name: 'Save as version 2' }).click();
    await page.getByRole('alert').getByText('Version mismatch: expected 2, got 1').waitFor();
    await page.getByText('Version 2 was saved after you opened version 1').waitFor();
    await page.locator('.conflict tr.added').getByText('changed elsewhere').waitFor();
    await page.getByRole('button', { name: 'Keep mine, on top of version 2' }).click();
    await page.getByRole('button', { name: 'Save as version 3' }).click();
    await page.getByRole('heading', { name: 'renamed here' }).waitFor();
    const { body } = await service.http.get(`/agents/${agent.id}`);
    expect(body).toMatchObject({ name: 'renamed here', system: 'changed elsewhere', version: 3 });
    await close();
  });

  it('create an environment, keep its variables, and delete it', async () => {
    const { page, faults, open, close } = await signIn(browser, service);
    await open('/environments/new');
    await page.getByLabel('Name', { exact: true }).fill('node tools');
    await page.getByLabel(/^Packages/).fill('npm:typescript@5.9.3\napt:jq');
    await page.getByLabel(/^Variables/).fill('API_URL=https://example.com/?a=b\nMODE= spaced ');
    await page.getByLabel('Network').selectOption('limited');
    await page.getByLabel(/^Allowed hosts/).fill('api.example.com');
    await page.getByLabel(/registries of package managers/).check();
    await page.getByRole('button', { name: 'Create the environment' }).click();
    await page.getByRole('heading', { name: 'node tools' }).waitFor();
    const id = page.url().split('/').at(-1) ?? '';
    const created = (await service.http.get(`/environments/${id}`)).body;
    expect(created).toMatchObject({
      packages: [
        { manager: 'npm', name: 'typescript', version: '5.9.3' },
        { manager: 'apt', name: 'jq' },
      ],
      env_var_keys: ['API_URL', 'MODE'],
      networking: {
        type: 'limited',
        allowed_hosts: ['api.example.com'],
        allow_package_managers: true,
        allow_mcp_servers: false,
      },
    });
    await page.getByRole('link', { name: 'Edit' }).click();
    await page.getByLabel('Setup script').fill('true');
    await page.getByRole('button', { name: 'Save as version 2' }).click();
    await page.locator('figure[data-path="setup script"]').waitFor();
    expect((await service.http.get(`/environments/${id}`)).body).toEqual({
      ...created,
      setup_script: 'true',
      version: 2,
      updated_at: expect.any(String),
    });
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('There are no environments yet').waitFor();
    expect(faults).toEqual([]);
    await close();
  });

  it('show the words of the service for what it refuses', async () => {
    const { page, open, close } = await signIn(browser, service);
    await open('/agents/new');
    await page.getByLabel('Name', { exact: true }).fill('wrong');
    await page.getByLabel('Model').fill('no-such-model');
    await page.getByRole('button', { name: 'Create the agent' }).click();
    await page
      .getByRole('alert')
      .getByText(/expected a model that begins with/)
      .waitFor();
    await page.getByLabel(/^Skills/).fill('{');
    await page.getByRole('button', { name: 'Create the agent' }).click();
    await page
      .getByRole('alert')
      .getByText(/^Skills: /)
      .waitFor();
    await close();
  });

  it('move by keyboard, and show names as text', async () => {
    for (const name of ['one', `<b>two</b>${RIGHT_TO_LEFT}`]) {
      await service.http.post('/agents', { name, provider: 'shell', model: 'shell/bash' });
    }
    for (const colorScheme of ['light', 'dark'] as const) {
      const viewport = { width: colorScheme === 'dark' ? 390 : 1280, height: 800 };
      const { page, faults, open, close } = await signIn(browser, service, {
        colorScheme,
        viewport,
      });
      await open('/agents');
      await page.locator('.resource-list a').getByText('one').waitFor();
      await page.keyboard.press('j');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: '<b>two</b>⟨U+202E⟩gnp' }).waitFor();
      expect(await page.locator('main b').count()).toBe(0);
      for (const address of ['?view=edit', '?view=versions', '']) {
        await open(`${new URL(page.url()).pathname.replace('/console', '')}${address}`);
        await page.getByRole('heading', { name: '<b>two</b>⟨U+202E⟩gnp' }).waitFor();
        expect([address, await seriousProblems(page)]).toEqual([address, []]);
        expect(await overflow(page)).toBe(0);
      }
      await page.keyboard.press('Escape');
      await page.waitForURL('**/console/agents');
      expect(faults).toEqual([]);
      await close();
    }
  });
});
