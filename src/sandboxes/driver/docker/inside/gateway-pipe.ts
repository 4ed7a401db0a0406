/**
 * Connects standard input and output to the gateway, for workers: they reach the engine, but not the gateway's socket.
 * Ends with either side. Argument: the path of the socket.
 */
import { connect } from 'node:net';

const [, , path = ''] = process.argv;
const socket = connect({ path, allowHalfOpen: true });
socket.on('error', ({ message }) => {
  process.stderr.write(message);
  process.exit(1);
});
process.stdout.on('error', () => process.exit(1));
process.stdin.pipe(socket);
socket.pipe(process.stdout);
