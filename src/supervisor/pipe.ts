/**
 * Connects standard input and output to a unix socket, for workers that can start a program in the machine but not reach
 * the socket. Ends with either side. Arguments: the path of the socket, and for how many milliseconds to wait until it is
 * there.
 */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

const RETRY_MS = 20;
/** Nobody answers at the socket. */
const NOBODY = 75;

const [, , path = '', patience = '0'] = process.argv;
const until = Date.now() + Number(patience);

process.stdout.on('error', () => process.exit(1));
for (;;) {
  const socket = connect({ path, allowHalfOpen: true });
  const connected = await new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true));
    socket.once('error', () => resolve(false));
  });
  if (connected) {
    socket.on('error', () => process.exit(1));
    process.stdin.pipe(socket);
    socket.pipe(process.stdout, { end: false });
    // The supervisor has ended: the worker must not wait for it. Exits after everything is written.
    socket.once('end', () => process.stdout.write('', () => process.exit(0)));
    break;
  }
  if (Date.now() > until) process.exit(NOBODY);
  await delay(RETRY_MS);
}
