import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { agentImage } from '../../support/agent-image.js';
import { onDocker, onSprites } from '../../support/driver.js';
import { EventStreamClient, type StreamEvent } from '../../support/event-stream-client.js';
import { HttpClient } from '../../support/http-client.js';
import { lastingFolder } from '../../support/lasting-folder.js';
import { startService, type Service } from '../../support/service.js';
import { configureGateway } from '../../support/sprites/suite.js';
import { createTestDatabase, type TestDatabase } from '../../support/test-database.js';
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
    process.env.XDG_CACHE_HOME ?? lastingFolder(),
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
  model!: ModelEndpoint;
  service!: Service;
  /** Speaks for one user, whatever service runs. */
  http!: HttpClient;
  private token = '';
  private readonly models: ModelEndpoint[] = [];

  private constructor(
    private readonly env: Record<string, string | undefined>,
    private readonly database: TestDatabase,
    private readonly dataDir: string,
    private readonly through: readonly string[],
  ) {}

  /** @param through a command that starts the service, see ServiceOptions */
  static async start(
    env: Record<string, string | undefined> = {},
    through: readonly string[] = [],
  ): Promise<Rig> {
    const dataDir = await mkdtemp(join(tmpdir(), 'rig-'));
    const rig = new Rig(env, await createTestDatabase(), dataDir, through);
    try {
      await rig.open();
      return rig;
    } catch (error) {
      await rig.discard();
      throw error;
    }
  }

  /** Another model at another address, of which the service is restarted to learn. The old one stays where it is. */
  async moveModel(): Promise<void> {
    await this.service.stop();
    await this.open();
  }

  /** Another service with the same database, folder and model. */
  async restart(): Promise<void> {
    await this.serve(this.model);
  }

  async stop(): Promise<void> {
    await this.service.stop();
    await this.discard();
  }

  /** The tokens that a provider's programs have reported so far, and how they differ from what was counted. */
  async reportedTokens(
    provider: string,
  ): Promise<{ reported: number; onlyProgram: number; onlyGateway: number }> {
    const [, url = ''] = /Metrics on (http:[^\s"]+)/.exec(this.service.logs()) ?? [];
    const scrape = await (await fetch(url)).text();
    const sum = (name: string, side = ''): number =>
      [...scrape.matchAll(/^agent_sessions_(\w+)\{(.*)\} (\d+)$/gm)]
        .filter(([, found, labels = '']) => found === name && labels.includes(side))
        .filter(([, , labels = '']) => labels.includes(`provider="${provider}"`))
        .reduce((total, [, , , value]) => total + Number(value), 0);
    return {
      reported: sum('reported_tokens_total'),
      onlyProgram: sum('unmatched_tokens_total', 'side="program"'),
      onlyGateway: sum('unmatched_tokens_total', 'side="gateway"'),
    };
  }

  private async open(): Promise<void> {
    const model = await startModelEndpoint(mcpRoutes());
    this.models.push(model);
    await this.serve(model);
    this.model = model;
  }

  private async serve(model: ModelEndpoint): Promise<void> {
    const access: Record<string, string> = Object.fromEntries(
      ['ANTHROPIC', 'OPENAI', 'GEMINI'].flatMap((name) => [
        [`${name}_API_KEY`, MODEL_KEY],
        [`${name}_BASE_URL`, model.url],
      ]),
    );
    if (onSprites()) {
      const isAddress = ([name]: [string, string]) => name.endsWith('_BASE_URL');
      await configureGateway(Object.fromEntries(Object.entries(access).filter(isAddress)));
    }
    this.service = await startService({
      databaseUrl: this.database.url,
      dataDir: this.dataDir,
      through: this.through,
      env: {
        CACHE_DIR: TEST_CACHE,
        ...(onDocker() && { SANDBOX_IMAGE: await agentImage() }),
        LOG_LEVEL: 'debug',
        METRICS_PORT: '0',
        ...access,
        ...this.env,
      },
    });
    this.token ||= this.service.token;
    this.http = new HttpClient(this.service.url, this.token);
  }

  private async discard(): Promise<void> {
    for (const model of this.models) await model.stop();
    await this.database.drop();
    await rm(this.dataDir, { recursive: true, force: true });
  }

  /** Makes an agent and, for a networking, an environment, and starts a session with them. */
  async session(
    agent: Record<string, unknown>,
    prompt: string,
    more: { environment?: Record<string, unknown>; timeout?: number } = {},
  ): Promise<RunningSession> {
    const { http } = this;
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
          token: this.token,
          lastEventId,
        }).end(TURN_LIMIT_MS),
    };
  }

  async prompt(session: RunningSession, prompt: string): Promise<void> {
    await this.expect(
      202,
      this.http.post(`/sessions/${session.id}/prompt`, { prompt, timeout: 120 }),
    );
  }

  /** Waits for the end of the latest turn. */
  async finish(session: RunningSession, since?: number): Promise<TurnResult> {
    const stream = await session.stream(since);
    return { events: stream.events, output: stream.output(), terminal: stream.last };
  }

  /** Terminates what still runs and deletes the session with its sandbox. */
  async remove(session: RunningSession): Promise<void> {
    await this.http.post(`/sessions/${session.id}/terminate`);
    await this.expect(200, this.http.delete(`/sessions/${session.id}/delete`));
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
