import { setImmediate as turn } from 'node:timers/promises';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { KEY_PREFIXES } from '../../../src/gateway/grants.js';
import type { UsageEntry } from '../../../src/gateway/usage/usage-entry.js';
import { Metrics } from '../../../src/metrics/metrics.js';
import type { SandboxDriver } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { GRANT_KEYS, KeyRing } from '../../../src/secrets/key-ring.js';
import type { Prices } from '../../../src/usage/prices.js';
import { UsageCollector } from '../../../src/usage/usage-collector.service.js';
import type { UsageRepository } from '../../../src/usage/usage.repository.js';
import { ENCRYPTION_KEYS } from '../../support/service.js';
import { eventually } from '../../support/sessions.js';
import { OwnGateway } from './own-gateway.js';

const KEYS = KeyRing.parse(ENCRYPTION_KEYS);

let model: Server;
let gateway: OwnGateway;
let collector: UsageCollector;
let stored: UsageEntry[];
/** When the collector tried to connect; on the monotonic clock. */
let attempts: number[];
/** Whether it finds the gateway. */
let isFound: boolean;

beforeEach(async () => {
  model = createServer((request, response) => {
    request.resume().on('end', () => response.end('{"usage":{"input_tokens":7}}'));
  });
  await once(model.listen(0, '127.0.0.1'), 'listening');
  gateway = await OwnGateway.start([address()], 'collector', null, KEYS.derive(GRANT_KEYS));
  stored = [];
  attempts = [];
  isFound = false;
  const record = async (entries: readonly UsageEntry[]) => {
    stored.push(...entries);
    return entries;
  };
  const driver: Partial<SandboxDriver> = {
    connectGateway: async () => {
      attempts.push(performance.now());
      if (!isFound) throw new Error('no gateway runs');
      return gateway.keeper.connect();
    },
  };
  collector = new UsageCollector(
    { record } as unknown as UsageRepository,
    { nameOf: () => undefined } as unknown as Prices,
    driver as SandboxDriver,
    KEYS,
    new Metrics({ metricsPort: undefined } as never),
  );
});
afterEach(async () => {
  await collector.beforeApplicationShutdown();
  await gateway.stop();
  model.closeAllConnections();
  model.close();
});

const address = (): string => `127.0.0.1:${(model.address() as AddressInfo).port}`;
/** A request of an agent, whose usage the gateway then has. */
async function ask(): Promise<void> {
  const grant = gateway.grant({
    kind: 'model',
    api: 'anthropic',
    url: `http://${address()}`,
    key: 'real',
  });
  const { status } = await gateway.send('/anthropic/v1/messages', {
    method: 'POST',
    body: '{}',
    headers: { authorization: `Bearer ${KEY_PREFIXES.anthropic}${grant}` },
  });
  expect(status).toBe(200);
}

it('looks for a gateway that does not run less and less often', async () => {
  collector.onApplicationBootstrap();
  await eventually(() => attempts.length >= 4, 'four attempts');
  const pauses = attempts.slice(1).map((at, n) => at - (attempts[n] ?? 0));
  for (const [n, pause] of pauses.entries()) expect(pause).toBeGreaterThan(240 * 2 ** n);
});

it('connects at once when it is woken, and then no more', async () => {
  collector.onApplicationBootstrap();
  await eventually(() => attempts.length >= 3, 'a pause of a second');
  const before = attempts.length;
  isFound = true;
  collector.wake();
  await turn();
  expect(attempts).toHaveLength(before + 1);
  await ask();
  await eventually(() => stored.length === 1, 'the usage');
  collector.wake();
  await turn();
  expect(attempts).toHaveLength(before + 1);
});

it('connects before the end of a turn waits for its usage', async () => {
  await ask();
  isFound = true;
  await collector.flush(60_000);
  expect(stored).toMatchObject([{ turn: 'a-turn', input_tokens: 7 }]);
  // The connection serves from now on.
  await ask();
  await collector.flush(60_000);
  expect(stored).toHaveLength(2);
  expect(attempts).toHaveLength(1);
});
