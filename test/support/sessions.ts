import { setTimeout as delay } from 'node:timers/promises';
import { EventStreamClient, type StreamOptions } from './event-stream-client.js';
import type { Answer, HttpClient } from './http-client.js';
import { PATIENCE_MS } from './patience.js';
import { leftOf } from './sandbox-remains.js';
import {
  query,
  type Service,
  type ServiceOptions,
  startService,
  type TestUser,
} from './service.js';
import { SOFTWARE_CACHE } from './software.js';

export { prepareSoftware, ROOTFS_TIMEOUT_MS } from './software.js';

/** The usage of a session or turn without model requests, in a response without its `active_seconds`. */
export const NO_USAGE = {
  input_tokens: 0,
  output_tokens: 0,
  cache_read_input_tokens: 0,
  cache_creation_input_tokens: 0,
  requests: 0,
  cost_usd: 0,
};

const SHELL = { name: 'shell', provider: 'shell', model: 'shell/bash' };

/** The service with a shared cache and limits that a test can wait for. */
export function startSessionService(
  env: Record<string, string | undefined> = {},
  options: Omit<ServiceOptions, 'env'> = {},
): Promise<Service> {
  return startService({
    ...options,
    env: {
      CACHE_DIR: SOFTWARE_CACHE,
      LEASE_SECONDS: '2',
      SESSION_LIMIT: '100',
      LOG_LEVEL: 'debug',
      ...env,
    },
  });
}

/** Sessions as one user has them. */
export class SessionsOf {
  readonly http: HttpClient;
  private readonly token: string;
  private agent: Promise<string> | undefined;

  constructor(
    private readonly service: Pick<Service, 'url'>,
    user: Pick<TestUser, 'http' | 'token'>,
  ) {
    this.http = user.http;
    this.token = user.token;
  }

  async createAgent(members: object = {}): Promise<string> {
    const { status, body } = await this.http.post('/agents', { ...SHELL, ...members });
    if (status !== 201) throw new Error(`no agent: ${JSON.stringify(body)}`);
    return body.id;
  }

  async createEnvironment(members: object): Promise<string> {
    const { status, body } = await this.http.post('/environments', members);
    if (status !== 201) throw new Error(`no environment: ${JSON.stringify(body)}`);
    return body.id;
  }

  /** `POST /sessions`, with an agent that has no system prompt unless another one is named. */
  async post(prompt: string | undefined, members: object = {}): Promise<Answer> {
    this.agent ??= this.createAgent();
    return this.http.post('/sessions', { agent_id: await this.agent, prompt, ...members });
  }

  /** As {@link post}, and it has to be accepted. @returns the id */
  async create(prompt: string | undefined, members: object = {}): Promise<string> {
    const { status, text, body } = await this.post(prompt, members);
    if (status !== 202) throw new Error(`not accepted: ${status} ${text}`);
    return body.id;
  }

  async prompt(id: string, prompt: string, members: object = {}): Promise<void> {
    const { status, text } = await this.http.post(`/sessions/${id}/prompt`, { prompt, ...members });
    if (status !== 202) throw new Error(`not accepted: ${status} ${text}`);
  }

  stream(id: string, options: StreamOptions = {}): EventStreamClient {
    const url = `${this.service.url}/sessions/${id}/stream`;
    return new EventStreamClient(url, { token: this.token, ...options });
  }

  /** Creates a session and reads its stream to the end. */
  async run(prompt: string | undefined, members: object = {}): Promise<EventStreamClient> {
    return this.stream(await this.create(prompt, members)).end();
  }

  async get(id: string): Promise<Answer['body']> {
    return (await this.http.get(`/sessions/${id}`)).body;
  }

  async turns(id: string): Promise<Answer['body'][]> {
    return (await this.http.get(`/sessions/${id}/turns`)).body.data;
  }

  /** Waits until the session has the status, and returns it. */
  async reach(id: string, status: string): Promise<Answer['body']> {
    return eventually(async () => {
      const session = await this.get(id);
      return session.status === status ? session : undefined;
    }, `session ${id} to be ${status}`);
  }

  /** A session that has ended its first turn with the exit code 0. */
  async completed(prompt = 'echo done'): Promise<string> {
    const id = await this.create(prompt);
    await this.stream(id).end();
    await this.reach(id, 'completed');
    return id;
  }

  /** Ends and deletes all sessions of the user. */
  async clear(): Promise<void> {
    const sessions: { id: string }[] = (await this.http.get('/sessions')).body.data;
    await Promise.all(
      sessions.map(async ({ id }) => {
        await this.http.post(`/sessions/${id}/terminate`);
        await this.http.delete(`/sessions/${id}/delete`);
      }),
    );
  }
}

/** For what a test waits for: only what hangs takes so long, however busy the machine is. Milliseconds. */

/** Polls until there is something else than `undefined` or false. */
export async function eventually<T>(
  look: () => Promise<T | undefined | false> | T | undefined | false,
  what: string | (() => string),
  limitMs = PATIENCE_MS,
): Promise<T> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > deadline)
      throw new Error(`waited in vain for ${typeof what === 'string' ? what : what()}`);
    await delay(25);
  }
}

/** Deletes what the users have and waits until nothing is left of it. */
export async function leaveNothing(service: Service, users: readonly SessionsOf[]): Promise<void> {
  for (const user of users) await user.clear();
  await eventually(
    async () => (await query(service.databaseUrl, 'SELECT 1 FROM sandboxes')).length === 0,
    () => `no sandbox to be on record; the service said:\n${service.logs().slice(-4000)}`,
  );
  let left: string[] = [];
  await eventually(
    async () => (left = await leftOf(service)).length === 0,
    () => `nothing to be left of sandboxes:\n${left.join('\n')}`,
  );
}
