// Publishes messages to servers that accept them by POST, in a separate process.
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { message } from './messages.mjs';
import { serve } from './rpc.mjs';

const PLAIN = { type: 'text/plain', before: '', after: '' };

let credit = 0;
let stopped = true;
const going = () => !stopped;
const allowed = (seq) => stopped || seq <= credit;
let wake;
let running = Promise.resolve();

/**
 * One connection that posts one message at a time.
 * @param options `wrap`: the content type, and the text around each message.
 */
function connection({ port, wrap = PLAIN }) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  let answered;
  let answer = '';
  socket.on('data', (bytes) => {
    answer += bytes.latin1Slice();
    const end = answer.indexOf('\r\n\r\n');
    if (end === -1) return;
    const length = Number(/content-length: (\d+)/i.exec(answer)?.[1] ?? 0);
    if (answer.length < end + 4 + length) return;
    const status = answer.slice(9, 12);
    answer = '';
    answered?.(status);
  });
  socket.on('error', () => answered?.('lost'));
  return {
    post: (path, text) =>
      new Promise((resolve, reject) => {
        answered = (status) =>
          status.startsWith('20') ? resolve() : reject(new Error(`POST: ${status}`));
        const body = wrap.before + text + wrap.after;
        socket.write(
          `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${wrap.type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
        );
      }),
    end: () => socket.destroy(),
  };
}

/** Posts at a fixed rate over all channels, each channel in turn. */
async function paced({ port, wrap, paths, rate }) {
  const link = connection({ port, wrap });
  const begun = performance.now();
  for (let sent = 0; going(); sent += 1) {
    const wait = begun + (sent * 1000) / rate - performance.now();
    if (wait > 1) await delay(wait);
    await link.post(paths[sent % paths.length], message(Math.floor(sent / paths.length) + 1));
  }
  link.end();
}

/** Posts as fast as the server accepts messages, within an allowed distance of the slowest reader. */
async function flatOut({ port, wrap, paths }, connections) {
  await Promise.all(
    Array.from({ length: connections }, async (_, index) => {
      const link = connection({ port, wrap });
      const own = paths.filter((_path, at) => at % connections === index);
      for (let seq = 1; going(); seq += 1) {
        while (!allowed(seq)) {
          await new Promise((resolve) => {
            const before = wake;
            wake = () => (before?.(), resolve());
          });
        }
        for (const path of own) if (going()) await link.post(path, message(seq));
      }
      link.end();
    }),
  );
}

function ring() {
  const call = wake;
  wake = undefined;
  call?.();
}

serve({
  start(options) {
    stopped = false;
    credit = options.credit ?? 0;
    running = options.rate ? paced(options) : flatOut(options, Math.min(options.paths.length, 16));
    running.catch((error) => process.stderr.write(`publisher: ${error.stack}\n`));
  },
  allow(upTo) {
    credit = upTo;
    ring();
  },
  async stop() {
    stopped = true;
    ring();
    await running.catch(() => undefined);
  },
});
