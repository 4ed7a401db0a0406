import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';

/** An answer of the interface that says what is wrong, in the vendor's form. */
export interface Refusal {
  status: number;
  code: string;
  message: string;
  retryAfterSeconds?: number;
}

/** Everything that can go wrong with one request. */
export interface Fault {
  /** Waits first. */
  delayMs?: number;
  /** Answers so and does nothing. */
  refuse?: Refusal;
  /** Closes the connection and does nothing. */
  drop?: boolean;
  /** Does it, but closes the connection instead of answering. */
  loseAnswer?: boolean;
  /** WebSockets: accepts and closes without a frame. */
  closeAtOnce?: boolean;
  /** WebSockets: closes the connection after so many bytes were sent, in the middle of a frame. */
  cutAfter?: number;
  /** WebSockets: closes in good order, without the frame that has the exit code. */
  loseExit?: boolean;
  /** Attaching: leaves out what was printed before, or sends it twice. */
  scrollback?: 'lost' | 'repeated';
}

/** What a request wants, for deciding whether it fails. */
export interface Asked {
  /** `POST`, or `WS` for an upgrade. */
  method: string;
  /** Without the sprite's name: `/v1/sprites/*` and what follows. */
  path: string;
  name: string | undefined;
}

/** Common faults. */
export const RATE_LIMITED: Refusal = {
  status: 429,
  code: 'sprite_creation_rate_limited',
  message: 'too many sprites were created',
  retryAfterSeconds: 1,
};
export const AT_CAPACITY: Refusal = {
  status: 429,
  code: 'concurrent_sprite_limit_exceeded',
  message: 'too many sprites run at the same time',
  retryAfterSeconds: 1,
};
export const UNAVAILABLE: Refusal = {
  status: 503,
  code: 'service_unavailable',
  message: 'try again later',
};

/** Decides which requests fail: the queued faults first, each once, then `always`. */
export class Faults {
  private readonly queue: { matches: (asked: Asked) => boolean; fault: Fault }[] = [];
  /** How many faults took effect. */
  taken = 0;
  /** Asked for every request that no queued fault is for. */
  always: ((asked: Asked) => Fault | undefined) | undefined;

  /** The next request with this method whose path has this part fails so. */
  next(method: string, part: string, fault: Fault): void {
    const matches = (asked: Asked) => asked.method === method && asked.path.includes(part);
    this.queue.push({ matches, fault });
  }

  take(asked: Asked): Fault {
    const at = this.queue.findIndex(({ matches }) => matches(asked));
    const fault = at < 0 ? this.always?.(asked) : this.queue.splice(at, 1)[0]?.fault;
    if (fault !== undefined) this.taken += 1;
    return fault ?? {};
  }

  clear(): void {
    this.queue.length = 0;
    this.always = undefined;
  }
}

/** Makes a fault happen that comes before the work. @returns whether the request is done with */
export async function failBefore(
  { delayMs, refuse, drop }: Fault,
  request: IncomingMessage,
  answer: ServerResponse | Duplex,
): Promise<boolean> {
  if (delayMs !== undefined) await delay(delayMs);
  if (drop) {
    request.destroy();
    return true;
  }
  if (refuse === undefined) return false;
  sendRefusal(answer, refuse);
  return true;
}

/** The vendor's form of an error. */
export function sendRefusal(answer: ServerResponse | Duplex, refusal: Refusal): void {
  const { status, code, message, retryAfterSeconds } = refusal;
  const body = JSON.stringify({
    error: code,
    message,
    ...(retryAfterSeconds !== undefined && { retry_after_seconds: retryAfterSeconds }),
  });
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...(retryAfterSeconds !== undefined && { 'Retry-After': retryAfterSeconds }),
  };
  if ('writeHead' in answer) {
    answer.writeHead(status, headers).end(body);
    return;
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  answer.end(`HTTP/1.1 ${status} Refused\r\nConnection: close\r\n${lines.join('')}\r\n${body}`);
}
