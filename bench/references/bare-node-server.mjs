// A minimal Node server: no framework, no database, no users. Each channel has one log, and a stream is a cursor.
import { createServer } from 'node:http';
import { serve } from '../lib/rpc.mjs';

const channels = new Map();
const HEAD = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' };
const SLAB_BYTES = 64 * 1024;

function channelOf(name) {
  let channel = channels.get(name);
  if (!channel) channels.set(name, (channel = { frames: [], readers: new Set() }));
  return channel;
}

/** Sends everything after the reader's cursor in one write, until the socket applies backpressure. */
function send(reader) {
  const { frames } = reader.channel;
  if (reader.blocked || reader.at >= frames.length) return;
  const fresh = frames.slice(reader.at);
  reader.at = frames.length;
  if (reader.response.write(fresh.length === 1 ? fresh[0] : Buffer.concat(fresh))) return;
  reader.blocked = true;
  reader.response.once('drain', () => {
    reader.blocked = false;
    send(reader);
  });
}

function publish(name, body) {
  const channel = channelOf(name);
  const id = channel.frames.length + 1;
  const event = { type: 'output', id, stream: 'stdout', data: `${body}\n`, turn: 1 };
  channel.frames.push(Buffer.from(`id: ${id}\ndata: ${JSON.stringify(event)}\n\n`));
  // Messages that arrived in the same turn of the event loop are sent together.
  if (channel.due) return;
  channel.due = true;
  setImmediate(() => {
    channel.due = false;
    for (const reader of channel.readers) send(reader);
  });
}

/** Sends prepared slabs as fast as the connection accepts them. */
function sendSlabs(response, slabs) {
  let at = 0;
  const more = () => {
    while (at < slabs.length) {
      at += 1;
      if (!response.write(slabs[at - 1])) return void response.once('drain', more);
    }
    response.end();
  };
  more();
}

let slabs = [];
const server = createServer((request, response) => {
  const [, kind, name] = request.url.split('/');
  if (kind === 'pub') {
    let body = '';
    request.setEncoding('utf8').on('data', (text) => (body += text));
    request.on('end', () => {
      publish(name, body);
      response.writeHead(202, { 'content-length': 0 }).end();
    });
    return;
  }
  response.writeHead(200, HEAD);
  if (kind === 'slabs') return sendSlabs(response, slabs);
  response.flushHeaders();
  const channel = channelOf(name);
  const reader = { channel, response, at: 0, blocked: false };
  channel.readers.add(reader);
  response.on('close', () => channel.readers.delete(reader));
  send(reader);
});

serve({
  start: () =>
    new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port))),
  /** Accepts the same bytes that the service sends for the stream. */
  slabs({ base64 }) {
    const all = Buffer.from(base64, 'base64');
    slabs = [];
    for (let at = 0; at < all.length; at += SLAB_BYTES)
      slabs.push(all.subarray(at, at + SLAB_BYTES));
  },
});
