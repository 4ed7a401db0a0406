import { setTimeout as delay } from 'node:timers/promises';
import { type Answer, ask } from '../faults/http.js';
import { type StreamEvent, StreamReader } from '../faults/stream-reader.js';

const SHELL = { name: 'mallory', provider: 'shell', model: 'shell/bash' };
const TAIL = 600;
const TURN_SECONDS = 60;

/** One session, a prompt for each turn. */
export interface SessionPlan {
  environment?: object;
  agent?: object;
  /** `{{8}}` in them stands for so many seconds at full pace. */
  prompts: readonly string[];
  /** For how long a turn may run; default 60. */
  seconds?: number;
}

/** A hostile user: what they have, and the ways in which they use the service. */
export class Mallory {
  readonly url: string;
  readonly token: string;
  readonly signal: AbortSignal;
  /** All durations of attacks are multiplied by it. */
  readonly pace: number;
  /** A token that is not {@link token}, to be revoked. */
  readonly spareToken: () => Promise<{ token: string; revoke: () => Promise<void> }>;
  /** The token of another user of theirs, who may store nothing any more after a while. */
  readonly hoarderToken: string;
  private readonly made: Map<string, Promise<string>>;

  constructor(
    options: Pick<Mallory, 'url' | 'token' | 'signal' | 'pace' | 'spareToken' | 'hoarderToken'>,
    made = new Map<string, Promise<string>>(),
  ) {
    this.url = options.url;
    this.token = options.token;
    this.signal = options.signal;
    this.pace = options.pace;
    this.spareToken = options.spareToken;
    this.hoarderToken = options.hoarderToken;
    this.made = made;
  }

  /** When an attack that lasts so many seconds at full pace has to end; milliseconds since the epoch. */
  until(seconds: number): number {
    return Date.now() + seconds * 1000 * this.pace;
  }

  async request(method: string, path: string, body?: object, timeoutMs = 30_000): Promise<Answer> {
    this.signal.throwIfAborted();
    return ask(this.url + path, { method, token: this.token, body, timeoutMs });
  }

  /** A creating request that may be repeated with its key. */
  async keyed(key: string, path: string, body: object): Promise<Answer> {
    this.signal.throwIfAborted();
    const headers = { 'idempotency-key': key };
    return ask(this.url + path, { method: 'POST', token: this.token, body, headers });
  }

  get hoarder(): Mallory {
    const { url, hoarderToken, signal, pace, spareToken } = this;
    return new Mallory({ url, token: hoarderToken, signal, pace, spareToken, hoarderToken });
  }

  get bearer(): { authorization: string } {
    return { authorization: `Bearer ${this.token}` };
  }

  /** The id of an agent like this; made once. */
  agent(members: object = {}): Promise<string> {
    return this.once('/agents', { ...SHELL, ...members });
  }

  /** The id of an environment like this; made once. */
  environment(members: object): Promise<string> {
    return this.once('/environments', members);
  }

  /** Starts a session, waiting for a place if there is none. @returns its id */
  async start({
    environment,
    agent,
    prompts,
    seconds = TURN_SECONDS,
  }: SessionPlan): Promise<string> {
    const environment_id = environment ? await this.environment(environment) : null;
    const agent_id = await this.agent(agent);
    const prompt = this.paced(prompts[0] ?? '');
    const body = { agent_id, environment_id, prompt, timeout: seconds };
    const answer = await this.accepted('/sessions', body);
    if (answer.status !== 202) throw new Error(`not accepted: ${answer.status} ${answer.text}`);
    return String(answer.body['id']);
  }

  /** Repeats a request until it is accepted, because other attacks of the same user may have used up a limit. */
  private async accepted(path: string, body: object): Promise<Answer> {
    for (;;) {
      const answer = await this.request('POST', path, body);
      if (answer.status !== 429) return answer;
      await delay(500, undefined, { signal: this.signal });
    }
  }

  /** Runs a session and removes it. @returns how its last turn ended, and the end of its output. */
  async session(plan: SessionPlan): Promise<string> {
    const id = await this.start(plan);
    try {
      let ending = '';
      let cursor = 0;
      for (const [index, prompt] of plan.prompts.entries()) {
        if (index > 0) {
          const answer = await this.accepted(`/sessions/${id}/prompt`, {
            prompt: this.paced(prompt),
          });
          if (answer.status !== 202) return `${ending} | then ${answer.status} ${answer.text}`;
        }
        const { terminal, tail } = await this.follow(id, cursor, plan.seconds);
        ending = `${describe(terminal)} | ${tail}`;
        if (terminal?.type !== 'exit' || terminal.code !== 0) break;
        cursor = terminal.cursor ?? 0;
      }
      return ending;
    } finally {
      await this.remove(id);
    }
  }

  /** Reads a session's stream to the end of its turn, or gives up long after it should have ended. */
  async follow(
    id: string,
    cursor = 0,
    seconds = TURN_SECONDS,
  ): Promise<{ terminal?: StreamEvent; tail: string }> {
    let tail = '';
    const failures: string[] = [];
    const limit = AbortSignal.timeout(seconds * 1000 + 20_000);
    const reader = new StreamReader(
      {
        sessionId: id,
        token: this.token,
        base: () => this.url,
        patience: () => undefined,
        signal: AbortSignal.any([this.signal, limit]),
        onEvent: ({ data, stage, state, message }) => {
          if (data !== undefined) tail = (tail + data.slice(-TAIL)).slice(-TAIL);
          if (state === 'failed') failures.push(`${stage}: ${message}`);
        },
      },
      cursor,
    );
    try {
      const terminal = await reader.read();
      return { terminal, tail: oneLine([...failures, tail].join(' ')) };
    } catch (error) {
      this.signal.throwIfAborted();
      if (!limit.aborted) throw error;
      return { tail: oneLine(tail) };
    }
  }

  private paced(prompt: string): string {
    return prompt.replaceAll(/\{\{(\d+)\}\}/g, (_whole, seconds: string) =>
      String(Math.max(1, Math.round(Number(seconds) * this.pace))),
    );
  }

  async remove(id: string): Promise<void> {
    const path = `${this.url}/sessions/${id}`;
    const { token } = this;
    await ask(`${path}/terminate`, { method: 'POST', token }).catch(() => undefined);
    await ask(`${path}/delete`, { method: 'DELETE', token, timeoutMs: 30_000 }).catch(
      () => undefined,
    );
  }

  private once(path: string, body: object): Promise<string> {
    const key = path + JSON.stringify(body);
    const known = this.made.get(key);
    if (known) return known;
    const made = this.request('POST', path, body).then((answer) => {
      if (answer.status !== 201)
        throw new Error(`POST ${path}: ${answer.status} ${answer.text.slice(0, 300)}`);
      return String(answer.body['id']);
    });
    this.made.set(key, made);
    made.catch(() => this.made.delete(key));
    return made;
  }
}

/** An answer, or what came in its place. */
export type Countable = Pick<Answer, 'status' | 'body'> | string;

/** How often each answer came: `12× 201, 3× 422 (The user stores …)`. */
export class Answers {
  private readonly counts = new Map<string, number>();

  add(answer: Countable): void {
    const key =
      typeof answer === 'string'
        ? answer
        : answer.status < 400
          ? String(answer.status)
          : `${answer.status} (${detailOf(answer.body)})`;
    this.counts.set(key, (this.counts.get(key) ?? 0) + 1);
  }

  count(pattern: RegExp): number {
    return [...this.counts].reduce((sum, [key, n]) => sum + (pattern.test(key) ? n : 0), 0);
  }

  toString(): string {
    const common = [...this.counts].sort(([, a], [, b]) => b - a).slice(0, 8);
    return oneLine(common.map(([key, count]) => `${count}× ${key}`).join(', '));
  }
}

function detailOf({ detail }: Record<string, unknown>): string {
  return (typeof detail === 'string' ? detail : JSON.stringify(detail ?? '')).slice(0, 120);
}

function describe(terminal: StreamEvent | undefined): string {
  if (!terminal) return 'no end in time';
  const { type, code, message } = terminal;
  return type === 'exit' ? `exit ${code}` : `${type}: ${message}`;
}

/** Printable, so that an ending can stand in a log and in a table. */
export function oneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex -- that is what has to go
  return text.replace(/[\u0000-\u001f\u007f-\u009f\s]+/g, ' ').trim();
}
