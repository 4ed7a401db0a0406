import type { FastifyInstance } from 'fastify';
import createRouter, { type HTTPMethod } from 'find-my-way';

/**
 * Remembers every registered route, to distinguish an unknown path (404) from an unsupported method (405), which
 * Fastify does not.
 */
export class KnownRoutes {
  private readonly router = createRouter();
  private readonly entries: { method: string; url: string }[] = [];

  /** Must be called before the first route is registered. */
  observe(fastify: FastifyInstance): void {
    fastify.addHook('onRoute', (route) => {
      for (const method of [route.method].flat()) {
        this.entries.push({ method, url: route.url });
        if (!this.router.hasRoute(method as HTTPMethod, route.url)) {
          this.router.on(method as HTTPMethod, route.url, () => undefined);
        }
      }
    });
  }

  /** All routes as registered, e.g. `{ method: 'GET', url: '/agents/:id' }`. */
  all(): readonly { method: string; url: string }[] {
    return this.entries;
  }

  /** @returns the methods that the path of `url` supports, sorted; empty if there is no such path. */
  methodsFor(url: string): string[] {
    const path = url.split('?', 1)[0] ?? url;
    const methods = new Set(this.entries.map((entry) => entry.method));
    return [...methods]
      .filter((method) => {
        try {
          return this.router.find(method as HTTPMethod, path) !== null;
        } catch {
          return false;
        }
      })
      .sort();
  }
}

/**
 * Sets `Location` to the resource that a request created, or whose turn it queued (RFC 9110, section 10.2.2).
 * @param publicUrl prefix of the path, if the service knows its own address
 */
export function setLocation(fastify: FastifyInstance, publicUrl: string): void {
  fastify.addHook('preSerialization', (request, reply, payload, done) => {
    const { id } = (payload ?? {}) as { id?: unknown };
    if ((reply.statusCode === 201 || reply.statusCode === 202) && typeof id === 'string') {
      const [collection = ''] = (request.routeOptions.url ?? '').split('/:');
      void reply.header('location', `${publicUrl}${collection}/${id}`);
    }
    done(null, payload);
  });
}
