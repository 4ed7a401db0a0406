/**
 * Answers a worker's calls over standard input and output at the place of the launches, such as inside a container. Ends
 * with its input; launches go on. Its one argument is a {@link ServedPlace} as JSON.
 */
import { once } from 'node:events';
import { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { placeSupervisor } from './place-supervisor.js';
import { serveSupervisor } from './serve-supervisor.js';
import type { ServedPlace } from './served-place.js';

const place = JSON.parse(process.argv[2] ?? '') as ServedPlace;

const input = new Socket({ fd: 0, readable: true, writable: false });
const output = new Socket({ fd: 1, readable: false, writable: true });
const connection = Duplex.from({ readable: input, writable: output });
await serveSupervisor(connection, placeSupervisor(place));
if (!output.destroyed) await once(output, 'close');
process.exit(0);
