// Transfers of files in a process of its own: over plain sockets, so that the client costs little.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { serve } from './rpc.mjs';

const PIECE = Buffer.alloc(256 * 1024, 'x');

async function receive({ port, head }) {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  const begun = performance.now();
  socket.write(head);
  let bytes = 0;
  for await (const data of socket) bytes += data.length;
  return { bytes, ms: performance.now() - begun };
}

/** Sends a head and so many bytes, and reads until the other side closes. */
async function send({ port, head, bytes }) {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  const begun = performance.now();
  const closed = once(socket.resume(), 'close');
  socket.write(head);
  for (let left = bytes; left > 0; left -= PIECE.length) {
    const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
    if (!socket.write(piece)) await once(socket, 'drain');
  }
  socket.end();
  await closed;
  return { ms: performance.now() - begun };
}

/** Serves a file by `cat` on a socket; `path` is read, or written. @returns the port */
async function startCat({ path, writes }) {
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => {
    const stdio = writes ? [socket, 'ignore', 'inherit'] : ['ignore', socket, 'inherit'];
    const cat = spawn('sh', ['-c', writes ? 'exec cat >"$1"' : 'exec cat "$1"', 'sh', path], {
      stdio,
    });
    cat.once('exit', () => socket.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server.address().port;
}

serve({ receive, send, startCat });
