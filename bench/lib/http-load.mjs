// Sends requests sequentially on each of several connections, and checks the status of every response.
import { connect } from 'node:net';
import { serve } from './rpc.mjs';

function runConnection({ port, request, end, times }) {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    let answer = '';
    let sentAt = 0;
    const send = () => {
      sentAt = performance.now();
      if (sentAt >= end) {
        socket.destroy();
        return resolve();
      }
      socket.write(request);
    };
    socket.on('connect', send);
    socket.on('error', reject);
    socket.on('data', (bytes) => {
      answer += bytes.latin1Slice();
      const head = answer.indexOf('\r\n\r\n');
      if (head === -1) return;
      if (!isWhole(answer, head)) return;
      times.push(performance.now() - sentAt);
      if (!/^HTTP\/1\.1 20[01]/.test(answer)) return reject(new Error(answer.slice(0, 300)));
      answer = '';
      send();
    });
  });
}

/** A body of known length or in chunks. Streams that end have the latter. */
function isWhole(answer, head) {
  const length = /content-length: (\d+)/i.exec(answer)?.[1];
  return length === undefined
    ? answer.endsWith('\r\n0\r\n\r\n')
    : answer.length >= head + 4 + Number(length);
}

serve({
  /** @returns `p50` in milliseconds, `rate` per second. */
  async run({ port, method, path, headers, body = '', connections, seconds }) {
    const lines = Object.entries({
      host: `127.0.0.1:${port}`,
      ...headers,
      ...(body && {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      }),
    });
    const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    const request = `${method} ${path} HTTP/1.1\r\n${head}\r\n${body}`;
    const times = [];
    // The first requests of a process are slower because its code is compiled.
    const warmUp = { port, request, end: performance.now() + seconds * 250, times: [] };
    await Promise.all(Array.from({ length: connections }, () => runConnection(warmUp)));
    const begun = performance.now();
    const end = begun + seconds * 1000;
    await Promise.all(
      Array.from({ length: connections }, () => runConnection({ port, request, end, times })),
    );
    const rate = (times.length * 1000) / (performance.now() - begun);
    times.sort((a, b) => a - b);
    return { p50: times[Math.floor(times.length / 2)], rate };
  },
});
