import { setTimeout as delay } from 'node:timers/promises';
import type { Cluster } from './cluster.js';
import { type Answer, ask } from './http.js';
import type { Random } from './random.js';
import { planScript, scriptOf, type ScriptPlan } from './script.js';
import { type StreamEvent, StreamReader } from './stream-reader.js';
import { compareTurn } from './verify.js';

/** What the sessions of a run came to. */
export class Tally {
  sessions = 0;
  turns = 0;
  terminated = 0;
  readers = 0;
  connections = 0;
  bytes = 0;
  lost = 0;
  repeated = 0;
  reordered = 0;
  readonly problems: string[] = [];
  private readonly onProblem: (problem: string) => void;

  /** @param onProblem hears of each problem when it is found. */
  constructor(onProblem: (problem: string) => void = () => undefined) {
    this.onProblem = onProblem;
  }

  problem(text: string): void {
    this.problems.push(text);
    this.onProblem(text);
  }
}

export interface WorkloadOptions {
  cluster: Cluster;
  random: Random;
  tally: Tally;
  agentId: string;
  /** About how long a turn takes, from and to; seconds. */
  turnSeconds: readonly [number, number];
  readersPerSession: number;
  /** How readers treat their connections. */
  restless: boolean;
  /** Every session has one turn that runs to its end with 0. */
  steady?: boolean;
  /** Ends everything that waits. */
  signal: AbortSignal;
}

/** Who asks, where, and for how long. */
export interface Asking extends Pick<WorkloadOptions, 'random' | 'signal'> {
  cluster: Pick<Cluster, 'apis' | 'token'>;
}

/** One request of a client that repeats it until it is answered, with the same key: it may not be done twice. */
export async function retry(
  options: Asking,
  method: string,
  path: string,
  body: object | undefined,
  accepted: readonly number[],
  key?: string,
): Promise<Answer> {
  for (;;) {
    options.signal.throwIfAborted();
    const base = options.random.pick(options.cluster.apis).url;
    const answer = await ask(base + path, {
      method,
      token: options.cluster.token,
      body,
      headers: key === undefined ? {} : { 'idempotency-key': key },
      timeoutMs: 8_000,
    }).catch(() => undefined);
    if (answer && accepted.includes(answer.status)) return answer;
    // No answer at all, or that the database is away: the client tries again.
    if (answer && answer.status !== 503)
      throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    await delay(100);
  }
}

/** Runs one session with one or more turns and several readers, and checks everything that these get to see. */
export class SessionRun {
  private readonly options: WorkloadOptions;
  private readonly plans: ScriptPlan[] = [];
  private readonly random: Random;
  private terminal: StreamEvent | undefined;
  private mayBeTerminated = false;
  id = '';

  constructor(options: WorkloadOptions) {
    this.options = options;
    this.random = options.random.fork();
  }

  async run(): Promise<void> {
    const { tally } = this.options;
    try {
      const { steady } = this.options;
      const turns = !steady && this.random.chance(0.3) ? 2 : 1;
      const cutShort = !steady && this.random.chance(0.1);
      this.mayBeTerminated = cutShort;
      for (let turn = 1; turn <= turns; turn += 1) {
        const last = turn === turns;
        await this.turn(
          turn,
          last && cutShort,
          last && !steady && this.random.chance(0.15) ? 3 : 0,
        );
      }
      await this.replay();
    } catch (error) {
      if (this.options.signal.aborted) throw error;
      tally.problem(`session ${this.id}: ${String(error)}`);
    }
  }

  private async turn(turn: number, cutShort: boolean, exitCode: number): Promise<void> {
    const { tally, agentId, turnSeconds } = this.options;
    const [from, to] = turnSeconds;
    const seconds = from + this.random.next() * (to - from);
    const plan = planScript(this.random, seconds, exitCode);
    this.plans.push(plan);
    const prompt = scriptOf(plan, turn);
    const key = `turn-${this.random.between(0, 2 ** 40)}`;
    if (turn === 1) {
      const body = { agent_id: agentId, prompt, timeout: 3600 };
      const answer = await this.ask('POST', '/sessions', body, [202], key);
      this.id = String(answer.body['id']);
      tally.sessions += 1;
    } else {
      await this.ask('POST', `/sessions/${this.id}/prompt`, { prompt }, [202], key);
    }
    tally.turns += 1;
    const start = this.terminal?.cursor ?? 0;
    const reading = Promise.all(
      Array.from({ length: this.options.readersPerSession }, () => this.follow(turn, start)),
    );
    const ending = cutShort ? this.terminateAfter(seconds * 1000 * this.random.next()) : undefined;
    const [terminals] = await Promise.all([reading, ending]);
    this.terminal = terminals[0];
    const wanted = cutShort ? ['terminated', 'exit'] : ['exit'];
    for (const terminal of terminals) {
      if (
        !wanted.includes(terminal.type) ||
        (terminal.type === 'exit' && terminal.code !== exitCode)
      )
        throw new Error(`turn ${turn} ended with ${JSON.stringify(terminal)}`);
      // A session that has completed may still be terminated, which late readers see.
      const sameEnd = terminal.type === this.terminal?.type || cutShort;
      if (!sameEnd || terminal.id !== this.terminal?.id)
        throw new Error(`readers saw different ends: ${JSON.stringify(terminals)}`);
    }
    if (this.terminal?.type === 'terminated') tally.terminated += 1;
  }

  private async follow(turn: number, start: number): Promise<StreamEvent> {
    const { cluster, tally, restless, signal } = this.options;
    const random = this.random.fork();
    tally.readers += 1;
    const reader = new StreamReader(
      {
        sessionId: this.id,
        token: cluster.token,
        base: () => random.pick(cluster.apis).url,
        patience: () => (restless && random.chance(0.7) ? random.between(50, 4_000) : undefined),
        signal,
      },
      start,
    );
    const terminal = await reader.read();
    tally.connections += reader.connections;
    tally.bytes += reader.bytes;
    this.judge(reader.events, turn, terminal);
    return terminal;
  }

  /** Everything again from the beginning, from every process: stored and streamed are the same. */
  private async replay(): Promise<void> {
    const { cluster, signal } = this.options;
    for (const api of cluster.apis) {
      const reader = new StreamReader({
        sessionId: this.id,
        token: cluster.token,
        base: () => api.url,
        patience: () => undefined,
        signal,
      });
      const terminal = await reader.read();
      for (let turn = 1; turn <= this.plans.length; turn += 1) {
        const own = turn === this.plans.length ? terminal : undefined;
        this.judge(reader.events, turn, own);
      }
      // A session that was just completed may still be terminated.
      const sameEnd = terminal.type === this.terminal?.type || this.mayBeTerminated;
      if (!sameEnd || terminal.id !== this.terminal?.id) {
        const both = JSON.stringify([this.terminal, terminal]);
        throw new Error(`live and replay end differently: ${both}`);
      }
      const starts = reader.events
        .filter(({ type }) => type === 'turn_start')
        .map(({ turn }) => turn);
      if (new Set(starts).size !== starts.length)
        throw new Error(`turn_start more than once in one replay: ${starts.join(', ')}`);
      this.judgeStages(reader.events);
    }
  }

  private judge(events: readonly StreamEvent[], turn: number, terminal?: StreamEvent): void {
    const plan = this.plans[turn - 1];
    if (!plan) throw new Error(`there is no turn ${turn}`);
    const complete = terminal === undefined || terminal.type === 'exit';
    const { lost, repeated, reordered, notes } = compareTurn(plan, events, turn, complete);
    const { tally } = this.options;
    tally.lost += lost;
    tally.repeated += repeated;
    tally.reordered += reordered;
    for (const note of notes) tally.problem(`session ${this.id}, ${note}`);
  }

  /** A successor goes on with a stage that its predecessor began, and does not announce it again. */
  private judgeStages(events: readonly StreamEvent[]): void {
    const stages = events.filter(({ type }) => type === 'stage');
    const names = stages.map(({ stage, state }) => `${stage} ${state}`);
    const repeated = names.filter(
      (name, index) => !name.startsWith('runtime_start') && names.indexOf(name) !== index,
    );
    const launches = names.filter((name) => name === 'runtime_start started').length;
    if (repeated.length > 0) throw new Error(`stages repeat: ${names.join(', ')}`);
    if (launches > this.plans.length) throw new Error(`runtime_start ${launches} times`);
  }

  private async terminateAfter(milliseconds: number): Promise<void> {
    await delay(milliseconds, undefined, { signal: this.options.signal });
    await this.ask('POST', `/sessions/${this.id}/terminate`, undefined, [200, 409]);
  }

  private ask(
    method: string,
    path: string,
    body: object | undefined,
    accepted: number[],
    key?: string,
  ) {
    return retry({ ...this.options, random: this.random }, method, path, body, accepted, key);
  }
}
