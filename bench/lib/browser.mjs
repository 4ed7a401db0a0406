import { spawnSync } from 'node:child_process';
import { chromium } from 'playwright-core';

/** The system's Chromium; `undefined` if it is not installed. */
const { stdout } = spawnSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' });
export const browserPath = stdout.trim() || undefined;

/**
 * Starts the browser and signs in to the console of a service.
 * @param service a client of the service, with its `url` and `token`
 * @returns the page, and `open(path)` that loads an address of the console anew
 */
export async function openConsole({ url, token }) {
  const browser = await chromium.launch({
    executablePath: browserPath,
    // A browser that root runs cannot have a sandbox of its own.
    chromiumSandbox: process.geteuid() !== 0,
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    await page.addInitScript(watchScreen);
    await page.goto(`${url}/console/`);
    await page.getByLabel('Access token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'Sessions', exact: true }).waitFor();
    return {
      page,
      open: (path) => page.goto(`${url}/console${path}`, { waitUntil: 'commit' }),
      stop: () => browser.close(),
    };
  } catch (error) {
    await browser.close();
    throw error;
  }
}

/** Runs in the page, before its own scripts. Looks at the screen once per frame, as a person does. */
function watchScreen() {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const numbers = (selector, mark) => {
    const text = document.querySelector(selector)?.textContent ?? '';
    return [...text.matchAll(new RegExp(`@${mark}=(\\d+)`, 'g'))].map(([, digits]) =>
      Number(digits),
    );
  };
  globalThis.bench = {
    /** @returns milliseconds from the start of the navigation until the message with this number is on screen. */
    async untilMessage(selector, number) {
      while (!numbers(selector, 's').includes(number)) await frame();
      return performance.now();
    },
    /**
     * @param since when the reader began to wait, by the page's clock; 0 is the start of the navigation
     * @returns milliseconds until a message that was printed after this is on screen
     */
    async untilLive(selector, since) {
      const from = (performance.timeOrigin + since) * 1000;
      while (!numbers(selector, 't').some((printed) => printed >= from)) await frame();
      return performance.now() - since;
    },
    /** Scrolls a list by some pixels per frame. @returns the milliseconds between frames, and frames with a hole. */
    async scroll(selector, frames, pixels) {
      const box = document.querySelector(selector);
      const { left, top, width, height } = box.getBoundingClientRect();
      const times = [];
      let holes = 0;
      box.scrollTop = 0;
      for (let settled = 0; settled < 10; settled += 1) await frame();
      let last = await frame();
      for (let at = 0; at < frames; at += 1) {
        box.scrollTop += pixels;
        const now = await frame();
        times.push(now - last);
        last = now;
        const hit = document.elementFromPoint(left + width / 2, top + height / 2);
        if (!hit?.closest('.virtual-item')) holes += 1;
      }
      return { times, holes };
    },
  };
}
