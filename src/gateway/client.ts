import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { DialError, type Egress, reset } from './egress/connections.js';
import type {
  BrokerRequest,
  EgressAnswer,
  EgressHold,
  EgressLookup,
  EgressRequest,
} from './protocol.js';
import type { NetworkGateway } from './network/dial-gateway.js';
import { LineTimeout, readLine } from './read-line.js';
import { shortPath } from './socket-path.js';

/** The gateway resolves and connects within a minute, or fails. */
const ANSWER_MS = 70_000;
/** How long new connections wait for a gateway that was killed until another one is started. */
const ABSENT_MS = 60_000;
const RETRY_MS = 50;
const NETWORK_RETRY_MS = 250;
const HOLD_RETRY_MS = 1000;

/** Where a gateway is: the path of its unix socket, or on the network. */
export type GatewayAddress = string | NetworkGateway;

/** The way out of a relay, and to the broker. */
export interface GatewayClient extends Egress {
  /** Connects to the broker in the name of a sandbox. @throws DialError */
  broker(sandboxId: string, signal: AbortSignal): Promise<Socket>;
}

/** The client of a gateway. It waits for a gateway that is being replaced. */
export function gatewayAt(gateway: GatewayAddress): GatewayClient {
  const relay = randomUUID();
  const open = async (
    request: EgressRequest | BrokerRequest,
    signal: AbortSignal,
  ): Promise<Socket> => {
    const { socket, answer } = await ask(gateway, request, signal);
    if (answer.ok) return socket;
    reset(socket);
    throw new DialError(answer.kind, answer.message);
  };
  return {
    connect: ({ host, port, isGateway }, signal) => open({ relay, host, port, isGateway }, signal),
    broker: (sandboxId, signal) => open({ relay, broker: sandboxId }, signal),
    exists: async (host, signal) => {
      const { socket, answer } = await ask(gateway, { relay, lookup: host }, signal);
      reset(socket);
      if (answer.ok) return answer.found === true;
      throw new DialError(answer.kind, answer.message);
    },
  };
}

/** Keeps the gateway running, now and after each replacement, until this process ends. */
export function holdGateway(socketPath: string): void {
  const socket = connect(shortPath(socketPath)).unref();
  socket.on('error', () => undefined);
  socket.on('close', () => setTimeout(holdGateway, HOLD_RETRY_MS, socketPath).unref());
  const request: EgressHold = { hold: true };
  socket.write(`${JSON.stringify(request)}\n`);
  socket.resume();
}

/** @throws DialError if there is no answer; the socket is closed then */
async function ask(
  gateway: GatewayAddress,
  request: EgressRequest | EgressLookup | BrokerRequest,
  signal: AbortSignal,
): Promise<{ socket: Socket; answer: EgressAnswer }> {
  const end = performance.now() + ABSENT_MS;
  for (;;) {
    try {
      return await askOnce(gateway, request, signal);
    } catch (error) {
      // Nothing was forwarded yet, so that another gateway can be asked the same.
      const { cause } = error as Error;
      const isAbsent = !(cause instanceof LineTimeout || cause instanceof DialError);
      if (!isAbsent || signal.aborted || performance.now() > end) throw error;
      await delay(retryOf(gateway));
    }
  }
}

/** A gateway on the network may be absent for all sandboxes at a time, which must not keep it from starting. */
function retryOf(gateway: GatewayAddress): number {
  return typeof gateway === 'string' ? RETRY_MS : NETWORK_RETRY_MS * (0.5 + Math.random());
}

/** Loaded when first needed: one on this machine needs no TLS. */
async function dialNetwork(gateway: NetworkGateway, signal: AbortSignal): Promise<Socket> {
  const { dialGateway } = await import('./network/dial-gateway.js');
  return dialGateway(gateway, signal);
}

async function askOnce(
  gateway: GatewayAddress,
  request: EgressRequest | EgressLookup | BrokerRequest,
  signal: AbortSignal,
): Promise<{ socket: Socket; answer: EgressAnswer }> {
  let socket: Socket | undefined;
  const abandon = (): void => socket && reset(socket);
  signal.addEventListener('abort', abandon);
  try {
    socket =
      typeof gateway === 'string'
        ? connect({ path: shortPath(gateway), allowHalfOpen: true })
        : await dialNetwork(gateway, signal);
    if (signal.aborted) abandon();
    socket.on('error', () => undefined);
    socket.write(`${JSON.stringify(request)}\n`);
    return { socket, answer: JSON.parse(await readLine(socket, ANSWER_MS)) as EgressAnswer };
  } catch (error) {
    abandon();
    if (error instanceof DialError)
      throw new DialError(error.kind, error.message, { cause: error });
    const cause = (error as Error).message;
    throw new DialError('failed', `the gateway does not answer: ${cause}`, { cause: error });
  } finally {
    signal.removeEventListener('abort', abandon);
  }
}
