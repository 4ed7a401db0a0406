import 'reflect-metadata';
import type { OpenAPIObject } from '@nestjs/swagger';
import { loadConfig } from './config/app-config.js';
import { createApp } from './create-app.js';
import { buildDocument } from './openapi/build-document.js';
import type { OpenApiVersion } from './openapi/schemas.js';

/** The document of a service with the default configuration, made without a database and without listening. */
export async function offlineDocument(version: OpenApiVersion): Promise<OpenAPIObject> {
  const config = loadConfig({ LOG_LEVEL: 'error' });
  // Nothing is connected to: in preview mode Nest makes no instances.
  const app = await createApp(config, 'postgres://nowhere', { preview: true });
  return buildDocument(app, config, version);
}
