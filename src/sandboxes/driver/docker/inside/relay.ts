/**
 * The relay of one sandbox. It runs in its own container, which holds the network namespace that the sandbox's container
 * shares; the agent has no access to this container. Reads its policy from a file, and new ones from a unix socket.
 * Argument: a RelaySetup as JSON.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { NetworkPolicy } from '../../sandbox-driver.js';
import { Relay } from '../../../../supervisor/relay/relay.js';
import { throughGateway } from '../../../../supervisor/relay/through-gateway.js';
import type { ControlAnswer, RelaySetup } from './relay-setup.js';

const setup = JSON.parse(process.argv[2] ?? '') as RelaySetup;
const outside = throughGateway({ address: setup.gateway, sandboxId: setup.sandboxId });

/** Uses the initial policy only if none was stored later: the initial one may allow more. */
function storedPolicy(): NetworkPolicy {
  let stored: string;
  try {
    stored = readFileSync(setup.policyFile, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return setup.policy;
    throw error;
  }
  return JSON.parse(stored) as NetworkPolicy;
}

/** Writes the policy atomically, also in case the machine crashes. */
function storePolicy(wanted: NetworkPolicy): void {
  writeFileSync(`${setup.policyFile}.new`, JSON.stringify(wanted), { flush: true });
  renameSync(`${setup.policyFile}.new`, setup.policyFile);
}

function makeRelay(wanted: NetworkPolicy): Relay {
  return new Relay({
    policy: wanted,
    gateways: setup.gateways,
    privateHosts: setup.privateHosts,
    limits: setup.limits,
    ...outside,
    log: (event) => void process.stdout.write(`${JSON.stringify(event)}\n`),
  });
}

let policy = storedPolicy();
let relay = makeRelay(policy);

async function change(wanted: NetworkPolicy): Promise<void> {
  // Created first, so that the old policy stays in force if the new one is invalid.
  const next = makeRelay(wanted);
  storePolicy(wanted);
  await relay.close();
  policy = wanted;
  relay = next;
  await relay.listen();
}

let changes = Promise.resolve();
const control = createServer({ allowHalfOpen: true }, (client) => {
  let text = '';
  client.on('error', () => undefined);
  client.setEncoding('utf8').on('data', (data: string) => (text += data));
  client.on('end', () => {
    changes = changes.then(async () => {
      const answer = (message: ControlAnswer): void => void client.end(JSON.stringify(message));
      try {
        if (text !== '') await change(JSON.parse(text) as NetworkPolicy);
        answer({ ok: true, policy });
      } catch (error) {
        answer({ ok: false, message: (error as Error).message });
      }
    });
  });
});

process.on('SIGTERM', () => process.exit(0));
await relay.listen();
rmSync(setup.control, { force: true });
control.listen(setup.control, () => void process.stdout.write('ready\n'));
