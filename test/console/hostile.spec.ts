import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Browser, Page } from 'playwright-core';
import { describeWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import { openBrowser, signIn } from './support/console-page.js';

const ESCAPE = '\u001b';
const BELL = '\u0007';
const MARKUP =
  '<img src=x onerror="document.title=1"><script>document.title=2</script><svg onload=alert(3)>' +
  '<iframe src="https://leak.example"></iframe><style>body{display:none}</style>';
const RIGHT_TO_LEFT = '\u202egnp.exe\u202c \u2066\u2067inside\u2069\u2069';
/** Everything that has done something in some terminal or page. */
const TRICKS = [
  // Also first: the raw view shows only the beginning of an event.
  RIGHT_TO_LEFT,
  MARKUP,
  `${ESCAPE}[31m${MARKUP}${ESCAPE}[0m`,
  `${ESCAPE}]0;owned title${BELL}`,
  `${ESCAPE}]2;owned title${ESCAPE}\\`,
  `${ESCAPE}]52;c;${Buffer.from('owned clipboard').toString('base64')}${BELL}`,
  `${ESCAPE}]8;;javascript:document.title=4${BELL}click here${ESCAPE}]8;;${BELL}`,
  `${ESCAPE}]8;;https://leak.example/?x${BELL}and here${ESCAPE}]8;;${BELL}`,
  `${ESCAPE}[2J${ESCAPE}[H${ESCAPE}[999;999H${ESCAPE}[8;500;500t${ESCAPE}[?1049h${ESCAPE}[?1049l`,
  `${ESCAPE}[6n${ESCAPE}[c${ESCAPE}[>c${ESCAPE}P$q"p${ESCAPE}\\${ESCAPE}[5i${ESCAPE}[?1000h`,
  `${ESCAPE}_Gf=24,a=T;AAAA${ESCAPE}\\${ESCAPE}]1337;File=inline=1:AAAA${BELL}`,
  RIGHT_TO_LEFT,
  '[text](javascript:alert(1)) ![image](https://leak.example/pixel.png)',
  '[bank](https://leak.example/login) <https://leak.example/auto>',
].join('\n');

describeWith(['chromium', 'sandboxes'], 'hostile output', () => {
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

  it('does nothing in a terminal, and stays in it', async () => {
    const id = await print(TRICKS, 'echo; echo the end');
    const { page, faults, open, close } = await visit();
    await open(`/sessions/${id}?view=terminal`);
    await page.locator('.xterm-rows').getByText('the end').waitFor();
    await expectHarmless(page);
    expect(await page.locator('.xterm-rows').textContent()).toContain('⟨U+202E⟩');
    expect(faults).toEqual([]);
    await close();
  });

  it('opens a link of a terminal only after it has shown where it leads', async () => {
    const id = await print(
      `${ESCAPE}]8;;https://leak.example/?x${BELL}innocent${ESCAPE}]8;;${BELL}\n`,
    );
    const { page, faults, open, close } = await visit();
    await open(`/sessions/${id}?view=terminal`);
    await page.locator('.xterm-rows').getByText('innocent').click({ force: true });
    await page.getByRole('dialog').getByText('https://leak.example/?x').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    expect(faults).toEqual([]);
    await close();
  });

  it('is text in transcripts and raw events', async () => {
    const lines: unknown[] = [
      { type: 'assistant', message: { content: [{ type: 'text', text: TRICKS }] } },
      { type: 'assistant', message: { content: [{ type: 'thinking', thinking: TRICKS }] } },
      toolUse('1', MARKUP, { command: TRICKS }),
      toolResult('1', TRICKS),
      toolUse('2', 'Edit', {
        file_path: `${RIGHT_TO_LEFT}\n${MARKUP}`,
        old_string: MARKUP,
        new_string: TRICKS,
      }),
      toolResult('2', [{ type: 'image', source: { data: 'AAAA' } }, null, 5]),
      { type: 'system', subtype: MARKUP },
      { type: '__proto__', constructor: { prototype: {} } },
      { type: 'assistant', message: { content: [null, 5, { type: 'text', text: {} }] } },
      { type: 'result', subtype: 'error', result: TRICKS, is_error: true },
      [],
      null,
    ];
    const id = await print(`${lines.map((line) => JSON.stringify(line)).join('\n')}\n${TRICKS}\n`);
    await query(service.databaseUrl, `UPDATE sessions SET provider = 'anthropic' WHERE id = $1`, [
      id,
    ]);
    const { page, faults, open, close } = await visit();
    await open(`/sessions/${id}`);
    await page.getByText('The turn is done').waitFor();
    await page.locator('.virtual-box').evaluate((box) => {
      box.scrollTop = 0;
    });
    for (const fold of await page.locator('.fold:not(.note) > button.summary').all())
      await fold.click();
    await page.locator('.diff').waitFor();
    await expectHarmless(page);
    expect(await page.locator('.entry.text').first().textContent()).toContain('<img src=x onerror');
    const outputs = await expectDirectionsShown(page, '.fold.tool .output');
    expect(outputs).not.toContain('owned');
    await expectDirectionsShown(page, '.entry.text');
    const links = await page
      .locator('.entry.text a')
      .evaluateAll((found) => found.map((link) => [link.textContent, link.getAttribute('href')]));
    expect(links.length).toBeGreaterThanOrEqual(2);
    for (const [text, target] of links) expect(text).toBe(target);
    await open(`/sessions/${id}?view=raw`);
    await page.locator('.event').first().waitFor();
    await expectHarmless(page);
    await expectDirectionsShown(page, '.event .argument');
    expect(faults).toEqual([]);
    await close();
  });

  it('of 10 MB in one line is shown, clipped, and can be scrolled past', async () => {
    // On the other stream, so that it is an event of its own whatever the pace is: long ones are clipped.
    const id = await sessions.completed(
      `head -c 10000000 /dev/zero | tr '\\0' x; echo; sleep 1; echo after it >&2`,
    );
    const { page, faults, open, close } = await visit();
    for (const [view, box] of [
      ['terminal', '.xterm-rows'],
      ['transcript', '.virtual-box'],
      ['raw', '.virtual-box'],
    ] as const) {
      await open(`/sessions/${id}?view=${view}`);
      await page.locator(box).getByText('after it').first().waitFor();
      expect((await page.locator('.view').textContent())?.length).toBeLessThan(500_000);
      await expectHarmless(page);
    }
    expect(faults).toEqual([]);
    await close();
  });

  const visit = () => signIn(browser, service, { permissions: ['clipboard-read'] });

  /** A session that printed the text to its last byte. */
  async function print(text: string, then = ''): Promise<string> {
    const encoded = Buffer.from(text).toString('base64');
    return sessions.completed(`base64 -d <<'TEXT'\n${encoded}\nTEXT\n${then}`);
  }
});

const toolUse = (id: string, name: string, input: unknown) => ({
  type: 'assistant',
  message: { content: [{ type: 'tool_use', id, name, input }] },
});
const toolResult = (id: string, content: unknown) => ({
  type: 'user',
  message: { content: [{ type: 'tool_result', tool_use_id: id, content }] },
});

/**
 * Expects that characters which change the direction of text are shown by their code.
 * @param selector elements of which some contain {@link RIGHT_TO_LEFT}
 * @returns their text
 */
async function expectDirectionsShown(page: Page, selector: string): Promise<string> {
  const text = (await page.locator(selector).allTextContents()).join('\n');
  expect(text).toContain('⟨U+202E⟩');
  expect(text).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
  return text;
}

/** Nothing ran, nothing was loaded, and nothing is outside of the page's frame. */
async function expectHarmless(page: Page): Promise<void> {
  expect(await page.title()).toMatch(/^Session [0-9a-f]{8} · Console$/);
  expect(await page.evaluate(() => navigator.clipboard.readText())).not.toContain('owned');
  const found = await page.evaluate(() => ({
    elements: document.querySelectorAll('.view :is(img, script, iframe, svg, object, embed, form)')
      .length,
    handlers: [...document.querySelectorAll('.view *')].filter((element) =>
      element.getAttributeNames().some((name) => name.startsWith('on')),
    ).length,
    links: [...document.querySelectorAll<HTMLAnchorElement>('.view a')].filter(
      (link) => !/^https?:/.test(link.href),
    ).length,
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    hidden: getComputedStyle(document.body).display === 'none',
  }));
  expect(found).toEqual({ elements: 0, handlers: 0, links: 0, wider: 0, hidden: false });
}
