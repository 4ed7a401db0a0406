import type { INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { createHttpAdapter } from './common/http/adapter.js';
import { KnownRoutes } from './common/http/known-routes.js';
import type { AppConfig } from './config/app-config.js';
import { ApiDocument } from './openapi/api-document.js';
import { buildDocument } from './openapi/build-document.js';

/**
 * Builds the application without listening. It keeps its log to itself until it is given a logger.
 * @param options `preview`: without instances, to look at its routes only; such an application cannot be started.
 */
export async function createApp(
  config: AppConfig,
  databaseUrl: string,
  { preview = false }: { preview?: boolean } = {},
): Promise<INestApplication> {
  const routes = new KnownRoutes();
  const app = await NestFactory.create(
    AppModule.of({ config, databaseUrl, routes }),
    createHttpAdapter({
      routes,
      bodyLimitBytes: config.bodyLimitBytes,
      onlyPaths: config.role === 'worker' ? ['/healthz', '/readyz'] : undefined,
    }),
    {
      bodyParser: false,
      abortOnError: false,
      bufferLogs: true,
      autoFlushLogs: false,
      preview,
    },
  );
  app.setGlobalPrefix(config.apiPrefix, {
    exclude: ['healthz', 'readyz', 'openapi.json', 'openapi-3.0.json', 'docs', 'docs/:file'],
  });
  if (!preview) app.get(ApiDocument).describedBy((version) => buildDocument(app, config, version));
  return app;
}
