// Clients of a model API, directly or through the gateway. Each has one connection and sends one request after another.
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { gatewayAt } from '../../dist/src/gateway/client.js';
import { serve } from './rpc.mjs';
import { quantile } from './statistics.mjs';

serve({
  /** @returns the time from a request to the first byte of its body: p50 and p99 in milliseconds */
  async run({ port, socket, sandbox, key, path, clients, seconds }) {
    const until = performance.now() + seconds * 1000;
    const times = [];
    const client = async (_, index) => {
      // Spread over a second, as independent agents are.
      await delay((index * 1000) / clients);
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      if (socket !== undefined) {
        const gateway = gatewayAt(socket);
        agent.createConnection = (_options, created) => {
          gateway.broker(sandbox, AbortSignal.timeout(10_000)).then(
            (opened) => {
              created(null, opened);
              setImmediate(() => opened.resume());
            },
            (error) => created(error),
          );
        };
      } else agent.createConnection = () => connect(port, '127.0.0.1');
      for (let first = true; performance.now() < until; first = false) {
        const ms = await firstByte({ agent, path, key });
        // The first request of a client also connects.
        if (!first) times.push(ms);
      }
      agent.destroy();
    };
    await Promise.all(Array.from({ length: clients }, client));
    return { p50: quantile(times, 0.5), p99: quantile(times, 0.99), requests: times.length };
  },
});

function firstByte({ agent, path, key }) {
  return new Promise((resolve, reject) => {
    const begun = performance.now();
    let first;
    const sent = request({
      agent,
      method: 'POST',
      path,
      headers: { host: '127.0.0.1', 'x-api-key': key, 'content-length': 2 },
    });
    sent.once('error', reject);
    sent.once('response', (response) => {
      if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
      response.once('data', () => (first = performance.now() - begun));
      response.on('data', () => undefined);
      response.once('end', () => resolve(first));
    });
    sent.end('{}');
  });
}
