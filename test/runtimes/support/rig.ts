import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EventStreamClient, type StreamEvent } from '../../support/event-stream-client.js';
import { startService, type Service } from '../../support/service.js';
import {
  MODEL_KEY,
  startModelEndpoint,
  type ModelEndpoint,
} from '../model-endpoint/model-endpoint.js';
import { mcpRoutes } from './mcp-servers.js';

/** Kept between runs and shared by all checkouts on this machine: the programs are hundreds of megabytes. */
export const TEST_CACHE =
  process.env.TEST_CACHE_DIR ??
  join(
    process.env.XDG_CACHE_HOME ?? tmpdir(),
    // One for each user: what somebody else made cannot be added to.
    `agent-session-service-test-cache-${process.geteuid?.() ?? 0}`,
  );

/** A session, as a client sees it. */
export interface RunningSession {
  id: string;
  /** Reads the stream to the end of its latest turn. */
  stream(lastEventId?: number): Promise<EventStreamClient>;
}

export interface TurnResult {
  events: StreamEvent[];
  output: string;
  terminal: StreamEvent;
}

/** More than any turn of the suite may take, its installation included. */
const TURN_LIMIT_MS = 240_000;

/** The service with its model APIs replaced by a scripted one, which it knows as its gateway. */
export class Rig {
  private constructor(
    readonly service: Service,
    readonly model: ModelEndpoint,
  ) {}

  static async start(env: Record<string, string | undefined> = {}): Promise<Rig> {
    const model = await startModelEndpoint(mcpRoutes());
    const access = Object.fromEntries(
      ['ANTHROPIC', 'OPENAI', 'GEMINI'].flatMap((name) => [
        [`${name}_API_KEY`, MODEL_KEY],
        [`${name}_BASE_URL`, model.url],
      ]),
    );
    try {
      const service = await startService({
        env: { CACHE_DIR: TEST_CACHE, LOG_LEVEL: 'debug', ...access, ...env },
      });
      return new Rig(service, model);
    } catch (error) {
      await model.stop();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await this.service.stop();
    await this.model.stop();
  }

  /** Makes an agent and, for a networking, an environment, and starts a session with them. */
  async session(
    agent: Record<string, unknown>,
    prompt: string,
    more: { environment?: Record<string, unknown>; timeout?: number } = {},
  ): Promise<RunningSession> {
    const { http } = this.service;
    const made = await this.expect(201, http.post('/agents', { name: 'test', ...agent }));
    const environment =
      more.environment && (await this.expect(201, http.post('/environments', more.environment)));
    const session = await this.expect(
      202,
      http.post('/sessions', {
        agent_id: made.id,
        prompt,
        timeout: more.timeout ?? 120,
        ...(environment ? { environment_id: environment.id } : {}),
      }),
    );
    return {
      id: session.id,
      stream: (lastEventId) =>
        new EventStreamClient(`${this.service.url}/sessions/${session.id}/stream`, {
          token: this.service.token,
          lastEventId,
        }).end(TURN_LIMIT_MS),
    };
  }

  async prompt(session: RunningSession, prompt: string): Promise<void> {
    await this.expect(
      202,
      this.service.http.post(`/sessions/${session.id}/prompt`, { prompt, timeout: 120 }),
    );
  }

  /** Waits for the end of the latest turn. */
  async finish(session: RunningSession, since?: number): Promise<TurnResult> {
    const stream = await session.stream(since);
    return { events: stream.events, output: stream.output(), terminal: stream.last };
  }

  /** Terminates what still runs and deletes the session with its sandbox. */
  async remove(session: RunningSession): Promise<void> {
    await this.service.http.post(`/sessions/${session.id}/terminate`);
    await this.expect(200, this.service.http.delete(`/sessions/${session.id}/delete`));
  }

  private async expect<A extends { status: number; text: string; body: unknown }>(
    status: number,
    answer: Promise<A>,
  ): Promise<A['body']> {
    const { status: got, text, body } = await answer;
    if (got !== status) throw new Error(`expected ${status}, got ${got}: ${text}`);
    return body;
  }
}
