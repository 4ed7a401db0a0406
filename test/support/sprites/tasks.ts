import { once } from 'node:events';
import { chmod, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const LONGEST_MS = 3_600_000;

/** A span of time as in Go: `5m`, `30s`. */
export function milliseconds(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text);
  return match === null ? Number.NaN : Number(match[1]) * (UNITS[match[2] ?? ''] ?? Number.NaN);
}

/** The interface inside of a sprite, on a unix socket: tasks, which keep the sprite awake. */
export class Tasks {
  private readonly expiry = new Map<string, number>();
  private server: Server | undefined;

  constructor(private readonly folder: string) {}

  /** The tasks that keep the sprite awake now. */
  get live(): string[] {
    const now = Date.now();
    return [...this.expiry].flatMap(([name, until]) => (until > now ? [name] : []));
  }

  async listen(): Promise<void> {
    if (this.server !== undefined) return;
    const path = join(this.folder, 'api.sock');
    await rm(path, { force: true });
    this.server = createServer((request, response) => {
      const name = /^\/v1\/tasks\/([^/?]+)/.exec(request.url ?? '')?.[1];
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => (body += text));
      request.on('end', () => {
        const answer = (status: number, value?: unknown) =>
          response.writeHead(status).end(value === undefined ? undefined : JSON.stringify(value));
        if (request.method === 'GET' && name === undefined)
          return answer(200, { tasks: this.live });
        if (name === undefined) return answer(404, { error: 'not_found', message: 'no such path' });
        if (request.method === 'DELETE') return answer(this.expiry.delete(name) ? 204 : 404);
        const span = milliseconds(String((JSON.parse(body || '{}') as { expire?: string }).expire));
        if (!(span > 0) || span > LONGEST_MS) {
          return answer(400, { error: 'invalid', message: 'expire must be 1h at most' });
        }
        this.expiry.set(name, Date.now() + span);
        return answer(200, { name });
      });
    });
    this.server.listen(path);
    await once(this.server, 'listening');
    // The vendor's default user may use it. The worst case for an agent: everybody.
    await chmod(path, 0o777);
  }

  /** Tasks do not outlive the run. */
  clear(): void {
    this.expiry.clear();
  }

  async close(): Promise<void> {
    this.server?.closeAllConnections();
    await new Promise((resolve) => (this.server ? this.server.close(resolve) : resolve(undefined)));
    this.server = undefined;
  }
}
