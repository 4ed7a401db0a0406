/**
 * The way out for the relays of all sandboxes of an engine: runs in a container with a network and holds no secret and
 * no right. Ends when no relay has been there for a while; whoever starts a sandbox starts it again.
 * Arguments: the socket's path, and how long to wait for somebody in milliseconds.
 */
import { chmodSync, rmSync } from 'node:fs';
import { dialDestination, dialFromHost, resolveOnHost } from '../../shared/relay/dialing.js';
import { createEgress } from './egress-server.js';

const [, , socketPath = '', idleMs = ''] = process.argv;

const egress = createEgress((destination, signal) =>
  dialDestination(destination, { resolve: resolveOnHost, dial: dialFromHost, signal }),
);
let connections = 0;
let idle: NodeJS.Timeout | undefined;

function waitForSomebody(): void {
  idle = setTimeout(() => process.exit(0), Number(idleMs));
}

egress.on('connection', (client) => {
  connections += 1;
  clearTimeout(idle);
  client.once('close', () => {
    connections -= 1;
    if (connections === 0) waitForSomebody();
  });
});
process.on('SIGTERM', () => process.exit(0));
// Of one that was killed; there is never a second one beside it.
rmSync(socketPath, { force: true });
egress.listen(socketPath, () => {
  chmodSync(socketPath, 0o666);
  process.stdout.write('ready\n');
  waitForSomebody();
});
