/**
 * Answers workers' calls on a unix socket at the place of the launches, for as long as the machine runs. Launches go on
 * when it ends, and it may be started again at any time. Its arguments are the path of the socket, the path of a file
 * with a `GatewayLink` as JSON, which has a secret and need not exist, and a {@link ServedPlace} as JSON.
 */
import { chmodSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { openGatewayDoor } from './gateway-door.js';
import { placeSupervisor } from './place-supervisor.js';
import { serveSupervisor } from './serve-supervisor.js';
import type { GatewayLink } from './relay/relay-thread.js';
import type { ServedPlace } from './served-place.js';

const [, , path = '', linkFile = '', place = ''] = process.argv;
const supervisor = placeSupervisor(JSON.parse(place) as ServedPlace);

// Scripts and launches inherit it, so that the agent can read what a setup script installs. Only root can enter the
// folder of the socket.
process.umask(0o022);
// Left by the one before. If that still runs, its connections continue, and new ones come here.
rmSync(path, { force: true });
const server = createServer((connection) => {
  connection.on('error', () => undefined);
  serveSupervisor(connection, supervisor).catch(() => connection.destroy());
});
server.listen(path, () => chmodSync(path, 0o600));

openGatewayDoor(() => {
  try {
    return JSON.parse(readFileSync(linkFile, 'utf8')) as GatewayLink;
  } catch {
    // The service has no gateway for sandboxes.
    return undefined;
  }
});
