import type { INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { createHttpAdapter } from './common/http/adapter.js';
import { KnownRoutes } from './common/http/routes.js';
import type { AppConfig } from './config/app-config.js';
import { ApiDocument, buildDocument } from './openapi/build-document.js';
import { logRequests } from './logging/request-log.js';
import { Metrics } from './metrics/metrics.js';
import { measureRequests } from './metrics/request-metrics.js';
import { traceRequests } from './tracing/request-spans.js';
import { Tracing } from './tracing/tracing.js';

/**
 * Builds the application without listening. It keeps its log to itself until it is given a logger.
 * @param options `preview`: without instances, to look at its routes only; such an application cannot be started.
 */
export async function createApp(
  config: AppConfig,
  databaseUrl: string,
  { preview = false, tracing = Tracing.off }: { preview?: boolean; tracing?: Tracing } = {},
): Promise<INestApplication> {
  const routes = new KnownRoutes();
  const adapter = createHttpAdapter({
    routes,
    bodyLimitBytes: config.bodyLimitBytes,
    publicUrl: config.publicUrl,
    maxConnections: config.maxConnections,
    onlyPaths: config.role === 'worker' ? ['/healthz', '/readyz'] : undefined,
  });
  const app = await NestFactory.create(
    AppModule.of({ config, databaseUrl, routes, tracing }),
    adapter,
    {
      bodyParser: false,
      abortOnError: false,
      bufferLogs: true,
      autoFlushLogs: false,
      preview,
    },
  );
  app.setGlobalPrefix(config.apiPrefix, {
    exclude: [
      'healthz',
      'readyz',
      'openapi.json',
      'openapi-3.0.json',
      'docs',
      'docs/:file',
      'console',
      'console/*path',
    ],
  });
  if (!preview) {
    const fastify = adapter.getInstance();
    logRequests(fastify);
    traceRequests(fastify, tracing);
    measureRequests(fastify, app.get(Metrics));
    app.get(ApiDocument).describedBy((version) => buildDocument(app, config, version));
  }
  return app;
}
