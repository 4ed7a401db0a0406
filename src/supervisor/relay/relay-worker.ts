/** The relay of one sandbox, on a thread of its supervisor; see RelayThread. Receives the sockets in one message. */
import { parentPort, workerData } from 'node:worker_threads';
import { recordRefusal } from '../refusals.js';
import type { ListenerDescriptor } from './binding.js';
import { Relay } from './relay.js';
import { throughGateway } from './through-gateway.js';
import type { RelayThreadAnswer, RelayThreadOptions } from './relay-thread.js';

const { gateway, ...options } = workerData as RelayThreadOptions;
const relay = new Relay({
  ...options,
  ...(gateway && throughGateway(gateway)),
  log: recordRefusal,
});

parentPort?.once('message', (listeners: ListenerDescriptor[]) => {
  const answer = (message: RelayThreadAnswer): void => parentPort?.postMessage(message, []);
  relay.serveDescriptors(listeners).then(
    () => answer({ ok: true }),
    (error: unknown) => answer({ ok: false, message: (error as Error).message }),
  );
});
