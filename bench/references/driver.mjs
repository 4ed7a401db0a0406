// Only the sandbox with its supervisor: calls the built driver directly.
import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { serve } from '../lib/rpc.mjs';

const { makeLocalDriver } =
  await import('../../dist/src/sandboxes/driver/local/make-local-driver.js');

const signal = new AbortController().signal;
let folder;
let driver;

serve(
  {
    async start() {
      folder = await mkdtemp(join(tmpdir(), 'bench-driver-'));
      await chmod(folder, 0o755);
      driver = await makeLocalDriver({
        stateDir: join(folder, 'sandboxes'),
        cacheDir: join(folder, 'cache'),
        isolation: 'strict',
        gateways: [],
        npmEnv: process.env,
        limits: { memoryBytes: 2 ** 31, diskBytes: 2 ** 32, processes: 512 },
      });
      await driver.preflight({ signal });
    },
    /** Creates a sandbox and runs `echo hi` in it like the service. @returns milliseconds to its output. */
    async run({ id: sandboxId }) {
      const launchId = randomUUID();
      const begun = performance.now();
      const network = { mode: 'unrestricted', allowedHosts: [] };
      await driver.create({ sandboxId, signal, writableRoot: false, network });
      await driver.launch({
        sandboxId,
        launchId,
        signal,
        command: ['bash', '-c', 'echo hi'],
        env: {},
        stdin: '',
        deadline: Date.now() + 60_000,
        outputLimit: 1_000_000,
      });
      let at;
      for await (const event of driver.follow({ sandboxId, launchId, signal, offset: 0 })) {
        if (event.kind === 'chunk') at ??= performance.now();
        else if (event.exitCode !== 0)
          throw new Error(`the sandbox ended: ${JSON.stringify(event)}`);
      }
      await driver.destroy({ sandboxId, signal });
      return at - begun;
    },
  },
  async () => {
    await rm(folder, { recursive: true, force: true });
    process.exit(0);
  },
);
