import { cutTextStart } from '../common/storable.js';
import { SandboxError } from '../sandboxes/driver/sandbox-driver.js';
import type { Redactor } from './redaction/redactor.js';

const MAX_MESSAGE = 400;

/** The error of a script that did not succeed: the last lines of its output, without secrets. */
export function setupFailure(
  { exitCode, output }: { exitCode: number; output: string },
  redactor: Redactor,
): SandboxError {
  // Redacts before cutting, because a part of a secret would not be recognised.
  const said = lastLines(redactor.redact(output));
  return new SandboxError('failed', said || `exit code ${exitCode}`);
}

function lastLines(text: string): string {
  const tail = text.trim().split('\n').slice(-4).join('\n');
  return tail.length > MAX_MESSAGE ? `…${cutTextStart(tail, MAX_MESSAGE - 1)}` : tail;
}
