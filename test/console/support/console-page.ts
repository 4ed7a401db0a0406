import { spawnSync } from 'node:child_process';
import { createServer, connect, type Socket } from 'node:net';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import type { Service } from '../../support/service.js';
import { PATIENCE_MS } from '../../support/patience.js';

/** Starts the system's Chromium. Close it after the tests. */
export async function openBrowser(): Promise<Browser> {
  const { stdout } = spawnSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' });
  // A browser that root runs cannot have a sandbox of its own.
  return chromium.launch({
    executablePath: stdout.trim(),
    chromiumSandbox: process.geteuid?.() !== 0,
  });
}

/** A page of the console with what went wrong in it. */
export interface ConsolePage {
  page: Page;
  /** Errors and warnings of the browser's console, and requests to other hosts. Empty in a sound page. */
  faults: string[];
  /** Opens an address of the console. */
  open(path: string): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the console in a fresh profile and signs in, the way that a person does.
 * @param address where the browser finds the service; default: the service's own address
 */
export async function signIn(
  browser: Browser,
  service: Pick<Service, 'url' | 'token'>,
  options: BrowserContextOptions & { address?: string } = {},
): Promise<ConsolePage> {
  const { address = service.url, ...context } = options;
  const profile = await browser.newContext(context);
  profile.setDefaultTimeout(PATIENCE_MS);
  const page = await profile.newPage();
  const faults: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('dialog', (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('popup', (popup) => faults.push(`popup: ${popup.url()}`));
  page.on('request', (request) => {
    if (!request.url().startsWith(`${address}/`)) faults.push(`request: ${request.url()}`);
  });
  await page.goto(`${address}/console/`);
  await page.getByLabel('Access token').fill(service.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Sessions', exact: true }).waitFor();
  return {
    page,
    faults,
    open: async (path) => void (await page.goto(`${address}/console${path}`)),
    close: () => profile.close(),
  };
}

/**
 * By how many pixels the page, or a table or list in it, is wider than its room. What agents printed may be wider than
 * its own box: lines of files and of diffs.
 */
export const overflow = (page: Page): Promise<number> =>
  page.evaluate(() =>
    [document.documentElement, ...document.querySelectorAll('.scroll, .scroll-x, .list, .tabs')]
      .filter((element) => element.closest('.diff, .markdown, .file-text') === null)
      .reduce((sum, element) => sum + element.scrollWidth - element.clientWidth, 0),
  );

/** A network between browser and service that can be cut. */
export interface CuttableNetwork {
  /** Where the browser finds the service. */
  url: string;
  /** Ends all connections at once. */
  cut(): void;
  /** Ends all connections, and takes no new ones until {@link restore}. */
  lose(): void;
  restore(): void;
  stop(): Promise<void>;
}

/** Passes connections on to a service. */
export async function cuttableNetwork(service: Pick<Service, 'url'>): Promise<CuttableNetwork> {
  const { hostname, port } = new URL(service.url);
  const sockets = new Set<Socket>();
  const track = (socket: Socket): Socket => {
    sockets.add(socket);
    return socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  };
  let lost = false;
  const server = createServer((near) => {
    if (lost) {
      near.destroy();
      return;
    }
    const far = track(connect(Number(port), hostname));
    track(near).pipe(far).pipe(near);
    near.on('close', () => far.destroy());
    far.on('close', () => near.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const bound = server.address();
  if (bound === null || typeof bound === 'string') throw new Error('not bound to a port');
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${bound.port}`,
    cut,
    lose: () => {
      lost = true;
      cut();
    },
    restore: () => {
      lost = false;
    },
    stop: async () => {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
