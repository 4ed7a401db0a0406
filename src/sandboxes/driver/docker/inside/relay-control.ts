/**
 * Sets the policy of a sandbox's relay and waits until it is in force, or queries the current one. Arguments: the
 * relay's socket, and optionally the new policy as JSON. Prints the current policy.
 */
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import type { ControlAnswer } from './relay-setup.js';

const [, , socketPath = '', policy = ''] = process.argv;
const socket = connect({ path: socketPath, allowHalfOpen: true });
socket.end(policy);
const answer = JSON.parse(await text(socket)) as ControlAnswer;
if (answer.ok) process.stdout.write(JSON.stringify(answer.policy));
else {
  process.stderr.write(answer.message);
  process.exitCode = 1;
}
