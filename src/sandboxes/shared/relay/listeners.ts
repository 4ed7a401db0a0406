/**
 * Runs inside a sandbox's fresh network namespace, before anything untrusted does: makes the listening sockets that
 * its one argument lists (JSON, an array of ListenerSpec), hands them to the parent over Node's IPC channel, waits until
 * the parent has them all and exits 0. A socket keeps the namespace it was made in, so the parent answers in the
 * namespace without ever entering it. Exits 1 with one line on stderr if it cannot.
 */
import type { Socket } from 'node:dgram';
import type { Server } from 'node:net';
import { bindListeners } from './binding.js';
import type { AdoptedMessage, ListenerMessage, ListenerSpec } from './listener-plan.js';

/** Longer than any healthy parent takes; only keeps an orphan from waiting for ever. */
const ADOPTION_TIMEOUT_MS = 10_000;

function fail(message: string): never {
  process.stderr.write(`relay listeners: ${message}\n`);
  process.exit(1);
}

function send(message: ListenerMessage, handle?: Server | Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    process.send?.(message, handle, undefined, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}

async function main(): Promise<void> {
  if (process.send === undefined) fail('started without an IPC channel');
  process.once('disconnect', () => fail('the parent let go before it had the sockets'));
  process.on('message', (message) => {
    if ((message as AdoptedMessage).kind === 'adopted') process.exit(0);
  });
  setTimeout(() => fail('the parent did not take the sockets in time'), ADOPTION_TIMEOUT_MS);

  const plan = JSON.parse(process.argv[2] ?? '') as ListenerSpec[];
  const bound = await bindListeners(plan).catch((error: unknown) => fail((error as Error).message));
  for (const [index, listener] of bound.entries()) {
    const message = { kind: 'listener', index, ...(listener ? {} : { skipped: true }) } as const;
    await send(message, listener?.handle);
  }
}

main().catch((error: unknown) => fail(String(error)));
