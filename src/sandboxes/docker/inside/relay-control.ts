/**
 * Gives a sandbox's relay another policy and waits until it holds, or asks it which does. Arguments: the relay's socket,
 * and the policy as JSON or nothing. Prints the policy that holds.
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
