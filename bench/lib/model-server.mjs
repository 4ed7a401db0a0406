// A model provider in a process of its own: each request gets its first byte at once, and then some small events.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { serve } from './rpc.mjs';

const EVENT = `event: content_block_delta\ndata: ${JSON.stringify({ text: 'x'.repeat(60) })}\n\n`;

serve({
  /** @returns the port */
  async start({ events, everyMs }) {
    const answer = async (request, response) => {
      request.resume();
      await once(request, 'end');
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (let i = 0; i < events; i += 1) {
        response.write(EVENT);
        await delay(everyMs);
      }
      response.end();
    };
    const server = createServer((request, response) => void answer(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return server.address().port;
  },
});
