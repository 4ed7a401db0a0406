// The complete built service in its own process, except that its sandboxes are replaced by a source of messages in
// memory. It measures everything between a runtime's output and the client without the cost of runtimes: two hundred of
// them would use up this machine.
import 'reflect-metadata';
import { serve } from './rpc.mjs';
import { message } from './messages.mjs';

const { loadConfig } = await import('../../dist/src/config/app-config.js');
const { createApp } = await import('../../dist/src/create-app.js');
const { migrate, openDatabase } = await import('../../dist/src/database/migrate.js');
const { LogPartitions } = await import('../../dist/src/event-log/log-partitions.js');
const { Accounts } = await import('../../dist/src/auth/accounts.js');
const { SANDBOX_DRIVER } = await import('../../dist/src/sandboxes/sandbox-host.js');

const sources = new Map();
let app;
let database;
let credit = 0;
let waiting = [];

/** The last message that sources with flow control may write, by session. */
function allow(upTo) {
  credit = upTo;
  for (const wake of waiting.splice(0)) wake();
}

const untilAllowed = (signal) =>
  new Promise((resolve) => {
    waiting.push(resolve);
    signal.addEventListener('abort', resolve, { once: true });
  });

/** A message as an agent program prints what its model says. */
const asEntry = (text) =>
  JSON.stringify({ type: 'assistant', message: { content: [{ type: 'text', text }] } });

/** The events of the driver: each message is one read of the runtime's output. */
async function* follow({ launchId, signal }) {
  const { messages, free, bytes, entries, apart } = sources.get(launchId);
  let offset = 0;
  const allowed = free ? () => true : (seq) => seq <= credit;
  const fill = bytes && 'x'.repeat(bytes);
  for (let seq = 1; seq <= messages; seq += 1) {
    while (!allowed(seq)) {
      await untilAllowed(signal);
      if (signal.aborted) throw signal.reason;
    }
    const text = fill ? `@s=${seq} ${fill}` : message(seq);
    const data = Buffer.from(`${entries ? asEntry(text) : text}\n`);
    // Output of the same stream that arrives at once shares an event.
    const stream = apart && seq % 2 === 0 ? 'stderr' : 'stdout';
    yield { kind: 'chunk', stream, data, offset, nextOffset: (offset += data.length) };
    // Like the real one, which reads one buffer at a time.
    if (seq % 256 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  yield { kind: 'exit', reason: 'exited', exitCode: 0 };
}

const nothing = async () => undefined;
const instead = {
  preflight: nothing,
  create: nothing,
  writeFiles: nothing,
  restrictNetwork: nothing,
  providePrograms: nothing,
  kill: nothing,
  discardSpool: nothing,
  destroy: nothing,
  exists: async () => true,
  list: async () => [],
  launch: async ({ launchId, stdin, command, env }) => {
    const asked = /bench (\{.*?\})/.exec(`${stdin} ${command.join(' ')} ${JSON.stringify(env)}`);
    sources.set(launchId, JSON.parse(asked[1]));
  },
  follow,
};

async function stop() {
  const [running, open] = [app, database];
  app = database = undefined;
  await running?.close();
  await open?.stop();
}

serve(
  {
    async start(env) {
      const config = loadConfig({ ...env, PORT: '0', HOST: '127.0.0.1', LOG_LEVEL: 'warn' });
      const quiet = { log: () => undefined, warn: () => undefined, error: () => undefined };
      database = await openDatabase(config, quiet);
      await migrate(database.url);
      app = await createApp(config, database.url);
      Object.assign(app.get(SANDBOX_DRIVER, { strict: false }), instead);
      await app.listen(0, '127.0.0.1');
      const { token } = await app.get(Accounts).ensureFirstUser();
      return { url: await app.getUrl(), databaseUrl: database.url, token };
    },
    allow,
    purge: () => app.get(LogPartitions, { strict: false }).dropExpired(),
    memory: () => {
      globalThis.gc?.();
      return process.memoryUsage();
    },
    stop,
  },
  // Also ends when the measuring process is gone.
  () => stop().finally(() => process.exit(0)),
);
