import { createSocket, type Socket } from 'node:dgram';
import { createServer, type Server } from 'node:net';
import type { ListenerSpec } from './listener-plan.js';

/** A listening socket of the plan. */
export interface BoundListener {
  spec: ListenerSpec;
  handle: Server | Socket;
}

function bind(spec: ListenerSpec): Promise<Server | Socket> {
  return new Promise((resolve, reject) => {
    if (spec.role === 'dns') {
      const socket = createSocket('udp4');
      socket.once('error', reject);
      socket.bind({ address: spec.address, port: spec.port, exclusive: true }, () => {
        resolve(socket);
      });
    } else {
      const server = createServer();
      server.once('error', reject);
      server.listen({ host: spec.address, port: spec.port, exclusive: true, backlog: 511 }, () => {
        resolve(server);
      });
    }
  });
}

/**
 * Makes the sockets of a plan in this process's network namespace; `undefined` stands for an optional one that cannot
 * be had.
 * @throws Error naming the socket that could not be bound
 */
export async function bindListeners(
  plan: readonly ListenerSpec[],
): Promise<(BoundListener | undefined)[]> {
  return Promise.all(
    plan.map(async (spec) => {
      try {
        return { spec, handle: await bind(spec) };
      } catch (error) {
        if (spec.optional) return undefined;
        const protocol = spec.role === 'dns' ? 'udp' : 'tcp';
        const cause = (error as NodeJS.ErrnoException).code ?? String(error);
        throw new Error(
          `cannot listen on ${protocol} ${spec.address} port ${spec.port}: ${cause}`,
          { cause: error },
        );
      }
    }),
  );
}
