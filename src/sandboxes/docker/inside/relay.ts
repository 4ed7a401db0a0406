/**
 * The relay of one sandbox: runs in a container of its own, which holds the network namespace that the sandbox's shares
 * and which nothing of the agent's ever enters. Takes its policy from a file, and another one over a unix socket.
 * Argument: a RelaySetup as JSON.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import type { NetworkPolicy } from '../../sandbox-driver.js';
import { Relay } from '../../shared/relay/relay.js';
import { connectThroughEgress } from './egress-client.js';
import type { EgressHold } from './egress-protocol.js';
import type { ControlAnswer, RelaySetup } from './relay-setup.js';

const RETRY_MS = 1000;

const setup = JSON.parse(process.argv[2] ?? '') as RelaySetup;

function storedPolicy(): NetworkPolicy {
  try {
    return JSON.parse(readFileSync(setup.policyFile, 'utf8')) as NetworkPolicy;
  } catch {
    return setup.policy;
  }
}

function makeRelay(wanted: NetworkPolicy): Relay {
  return new Relay({
    policy: wanted,
    gateways: setup.gateways,
    connect: connectThroughEgress(setup.egress),
    log: (event) => void process.stdout.write(`${JSON.stringify(event)}\n`),
  });
}

let policy = storedPolicy();
let relay = makeRelay(policy);

async function change(wanted: NetworkPolicy): Promise<void> {
  // Made first: one that cannot be applied leaves the old one in force.
  const next = makeRelay(wanted);
  writeFileSync(`${setup.policyFile}.new`, JSON.stringify(wanted));
  renameSync(`${setup.policyFile}.new`, setup.policyFile);
  await relay.close();
  policy = wanted;
  relay = next;
  await relay.listen();
}

/** As long as somebody is connected, the egress stays. */
function hold(): void {
  const socket = connect(setup.egress);
  socket.on('error', () => undefined);
  socket.on('close', () => setTimeout(hold, RETRY_MS));
  const request: EgressHold = { hold: true };
  socket.write(`${JSON.stringify(request)}\n`);
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
hold();
