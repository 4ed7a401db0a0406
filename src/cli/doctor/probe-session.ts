/** Lines at known times, and then silence. */
export const TICKS = 15;
export const TICK_SECONDS = 0.2;
const SCRIPT = `for i in $(seq ${TICKS}); do date +%s%3N; sleep ${TICK_SECONDS}; done; sleep 86400`;
const REQUEST_LIMIT_MS = 20_000;

/** The service refused something that the measurement needs. */
export class ProbeRefused extends Error {
  constructor(
    readonly what: string,
    readonly status: number,
    detail: string,
  ) {
    super(`${what} is answered with ${status}: ${detail}`);
  }
}

/** A session that writes lines at known times, made through an address of the service; the probe of the stream check. */
export class ProbeSession {
  private constructor(
    private readonly url: string,
    private readonly token: string,
    private readonly agentId: string,
    readonly id: string,
  ) {}

  /** @param timeout seconds after which the session ends by itself, should nobody end it. @throws ProbeRefused */
  static async start(url: string, token: string, timeout: number): Promise<ProbeSession> {
    const agent = await call(url, token, 'POST', '/agents', {
      name: 'agent-sessions doctor',
      provider: 'shell',
      model: 'shell/bash',
    });
    const session = await call(url, token, 'POST', '/sessions', {
      agent_id: agent.id,
      environment_id: null,
      prompt: SCRIPT,
      timeout,
    }).catch(async (error: unknown) => {
      await call(url, token, 'POST', `/agents/${agent.id}/archive`).catch(() => undefined);
      throw error;
    });
    return new ProbeSession(url, token, agent.id, session.id);
  }

  /** When its runtime was started, as far as the service says. */
  async isRunning(): Promise<boolean> {
    const { status } = await call(this.url, this.token, 'GET', `/sessions/${this.id}`);
    return status !== 'pending';
  }

  async openStream(cursor: number, signal: AbortSignal): Promise<Response> {
    return fetch(`${this.url}/sessions/${this.id}/stream`, {
      headers: {
        authorization: `Bearer ${this.token}`,
        'accept-encoding': 'gzip, deflate, br',
        accept: 'text/event-stream',
        'last-event-id': String(cursor),
      },
      signal,
    });
  }

  async terminate(): Promise<void> {
    await call(this.url, this.token, 'POST', `/sessions/${this.id}/terminate`);
  }

  /** Removes what was made: the session, and the agent as far as agents can be removed. */
  async remove(): Promise<void> {
    await this.terminate().catch(() => undefined);
    await call(this.url, this.token, 'DELETE', `/sessions/${this.id}/delete`);
    await call(this.url, this.token, 'POST', `/agents/${this.agentId}/archive`);
  }
}

async function call(
  url: string,
  token: string,
  method: string,
  path: string,
  body?: object,
): Promise<{ id: string; status: string }> {
  const response = await fetch(url + path, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body && { 'content-type': 'application/json' }),
    },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(REQUEST_LIMIT_MS),
  });
  const text = await response.text();
  if (!response.ok) throw new ProbeRefused(`${method} ${path}`, response.status, detailIn(text));
  return JSON.parse(text) as { id: string; status: string };
}

function detailIn(text: string): string {
  try {
    return String((JSON.parse(text) as { detail?: unknown }).detail);
  } catch {
    return text.slice(0, 100).split('\n', 1)[0] ?? '';
  }
}
