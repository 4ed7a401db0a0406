import { setTimeout as delay } from 'node:timers/promises';
import { browserPath, openConsole } from '../lib/browser.mjs';
import { pacedScript } from '../lib/messages.mjs';
import { startService } from '../lib/service.mjs';
import { median, quantile } from '../lib/statistics.mjs';
import { startSourceService } from '../lib/subjects.mjs';

export const title = 'The console in Chromium: a session that prints, and one with 50,000 events';
export const metrics = {
  opened: 'first line that was printed after opening the address, ms',
  openedWorst: 'the same, the slowest, ms',
  clicked: 'the same after a click in the list, ms',
  clickedWorst: 'the same after a click, the slowest, ms',
  raw: '50,000 events as raw events, ms from opening to the last on screen',
  transcript: '50,000 events as a transcript of as many entries, ms',
  terminal: '50,000 events in the terminal, ms',
  frame: 'frame while 50,000 events scroll, median, ms',
  frameWorst: 'frame while 50,000 events scroll, 99 of 100 are shorter, ms',
};
export const goals = [
  { label: 'console: first live line, ms', metric: 'openedWorst', atMost: 1_000 },
  { label: 'console: 50k raw events, ms', metric: 'raw', atMost: 2_000 },
  { label: 'console: 50k messages, ms', metric: 'transcript', atMost: 2_000 },
  { label: 'console: 50k events in a terminal, ms', metric: 'terminal', atMost: 2_000 },
  { label: 'console: frame while scrolling, p99, ms', metric: 'frameWorst', atMost: 34 },
];

/** The live session is real; the long ones come from a source in memory, one event for each message. */
export async function open({ say, tiny, profile }) {
  if (browserPath === undefined) {
    say('  without the console: Chromium is not installed (apt-get install chromium)');
    return { contenders: {}, close: async () => undefined };
  }
  const messages = tiny ? 2_000 : 50_000;
  const openings = tiny ? 2 : 10;
  const frames = tiny ? 30 : 300;
  const live = await startService();
  const source = await startSourceService({ profile });
  const watcher = await openConsole(live);
  const reader = await openConsole(source);

  const lines = await source.source(messages, { free: true, apart: true });
  const entries = await source.source(messages, { free: true, apart: true, entries: true });
  for (const id of [lines, entries]) await source.until(id, 'completed');
  // The console reads the JSON of this provider's program; the source printed it.
  await source.database.query(`UPDATE sessions SET provider = 'anthropic' WHERE id = $1`, [
    entries,
  ]);

  const repeat = async (begin) => {
    const times = [];
    for (let at = 0; at < openings; at += 1) times.push(await begin());
    return times;
  };
  const replay = async (id, view, selector) => {
    await reader.open(`/sessions/${id}?view=${view}`);
    return reader.page.evaluate(
      ([box, last]) => globalThis.bench.untilMessage(box, last),
      [selector, messages],
    );
  };
  const scroll = () =>
    reader.page.evaluate((count) => globalThis.bench.scroll('.virtual-box', count, 400), frames);
  const contenders = {
    service: async () => {
      const id = await live.run(pacedScript({ count: 10_000, intervalMs: 50 }));
      await live.until(id, 'running');
      await delay(500);
      const opened = await repeat(async () => {
        await watcher.open(`/sessions/${id}`);
        return watcher.page.evaluate(() => globalThis.bench.untilLive('.xterm-rows', 0));
      });
      const clicked = await repeat(async () => {
        await watcher.open('/');
        const link = watcher.page.locator(`.session-list a[href$="${id}"]`);
        await link.waitFor();
        return link.evaluate((element) => {
          const since = performance.now();
          element.click();
          return globalThis.bench.untilLive('.xterm-rows', since);
        });
      });
      await live.post(`/sessions/${id}/terminate`);
      const terminal = await replay(lines, 'terminal', '.xterm-rows');
      const raw = await replay(lines, 'raw', '.virtual-box');
      const inRaw = await scroll();
      const transcript = await replay(entries, 'transcript', '.virtual-box');
      const inTranscript = await scroll();
      const holes = inRaw.holes + inTranscript.holes;
      if (holes > 0) throw new Error(`nothing was to be seen in ${holes} frames`);
      const times = [...inRaw.times, ...inTranscript.times];
      return {
        opened: median(opened),
        openedWorst: Math.max(...opened),
        clicked: median(clicked),
        clickedWorst: Math.max(...clicked),
        raw,
        transcript,
        terminal,
        frame: median(times),
        frameWorst: quantile(times, 0.99),
      };
    },
  };
  const close = () => Promise.all([watcher, reader, live, source].map((one) => one.stop()));
  return { contenders, close };
}
