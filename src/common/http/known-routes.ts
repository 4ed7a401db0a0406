import type { FastifyInstance } from 'fastify';
import createRouter, { type HTTPMethod } from 'find-my-way';

/**
 * Remembers every route that is registered, to tell "no such path" (404) from "no such method here" (405), which
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

  /** @returns the methods that the path of `url` does answer, sorted; empty when there is no such path. */
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
