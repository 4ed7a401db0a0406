/**
 * The relay of one pod, which is its only way out: a network policy allows nothing but the gateway. Runs in the
 * supervisor's container. Reads a RelaySetup as JSON from standard input, because it contains the secret of the sandbox,
 * and prints `ready`.
 */
import { readFileSync } from 'node:fs';
import { Relay } from '../../../../supervisor/relay/relay.js';
import { throughGateway } from '../../../../supervisor/relay/through-gateway.js';
import type { PodRelaySetup } from './arrangement.js';

const { link, ...options } = JSON.parse(readFileSync(0, 'utf8')) as PodRelaySetup;
const relay = new Relay({
  ...options,
  ...throughGateway(link),
  log: (event) => void process.stdout.write(`${JSON.stringify(event)}\n`),
});
process.on('SIGTERM', () => process.exit(0));
await relay.listen();
process.stdout.write('ready\n');
