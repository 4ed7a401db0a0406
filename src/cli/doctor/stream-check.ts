import { firstLine } from '../command-line.js';
import { fail, type Finding } from './finding.js';
import { measureStream } from './measure-stream.js';
import { ProbeRefused, ProbeSession } from './probe-session.js';
import { judgeStream } from './stream-findings.js';

/** Seconds beyond the silence after which the probe ends by itself. */
const MARGIN_SECONDS = 300;

export interface StreamCheckOptions {
  url: string;
  token: string;
  silenceSeconds: number;
  holdSeconds: number;
}

/** Runs a session through the address and looks at how its stream arrives; removes the session. */
export async function checkStream(options: StreamCheckOptions): Promise<Finding[]> {
  const { url, token, silenceSeconds, holdSeconds } = options;
  try {
    const timeout = Math.ceil(Math.max(silenceSeconds, holdSeconds)) + MARGIN_SECONDS;
    const session = await ProbeSession.start(url, token, timeout);
    try {
      const measures = await measureStream(session, {
        silenceMs: silenceSeconds * 1000,
        holdMs: holdSeconds * 1000,
      });
      return judgeStream(measures);
    } finally {
      await session.remove();
    }
  } catch (error) {
    return [{ check: 'stream', ...fail(reasonOf(url, error), adviceFor(error)) }];
  }
}

function reasonOf(url: string, error: unknown): string {
  if (error instanceof ProbeRefused) return error.message;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return `${url}: ${firstLine(cause)}`;
}

function adviceFor(error: unknown): string {
  if (!(error instanceof ProbeRefused)) return 'is the address right, and does the service run?';
  if (error.status === 401)
    return 'give a valid token; something on the way may take Authorization away';
  if (error.status === 404) return 'is the address right? API_PREFIX belongs to it';
  if (error.status === 429) return 'give a token of a user who has a session to spare';
  return 'do what the message says';
}
