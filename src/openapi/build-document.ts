import { readFileSync } from 'node:fs';
import type { INestApplication, Type } from '@nestjs/common';
import { DocumentBuilder, type OpenAPIObject, SwaggerModule } from '@nestjs/swagger';
import { unions } from '../common/openapi/one-of.decorator.js';
import type { AppConfig } from '../config/app-config.js';
import { addCommonAnswers } from './common-answers.js';
import { DESCRIPTION, TAGS } from './introduction.js';
import { replaceUnions } from './subtypes.js';
import { nameUnions, type OpenApiVersion, tidySchemas } from './schemas.js';

/** Describes the application's whole interface. The application need not be initialised: only its decorators are read. */
export function buildDocument(
  app: INestApplication,
  config: Pick<AppConfig, 'publicUrl'>,
  version: OpenApiVersion = '3.1.0',
): OpenAPIObject {
  const builder = new DocumentBuilder()
    .setOpenAPIVersion(version)
    .setTitle('Agent Session Service')
    .setDescription(DESCRIPTION)
    .setVersion(packageVersion())
    .setLicense('Apache-2.0', 'https://www.apache.org/licenses/LICENSE-2.0')
    .addServer(config.publicUrl || '/', 'This service')
    .addSecurityRequirements('bearer')
    .addBearerAuth({
      type: 'http',
      scheme: 'bearer',
      bearerFormat: 'ast_…',
      description: 'An access token. Keep it on servers: it must never reach a browser.',
    });
  for (const [name, description] of Object.entries(TAGS)) builder.addTag(name, description);
  const document = SwaggerModule.createDocument(app, builder.build(), {
    extraModels: schemaClasses(),
    autoTagControllers: false,
  });
  nameUnions(document);
  addCommonAnswers(document);
  if (version === '3.0.3') replaceUnions(document);
  tidySchemas(document, version);
  return document;
}

/** Members of unions stand behind no property of their own, so the scan does not meet them. */
function schemaClasses(): Type[] {
  return [...unions()].flatMap(([union, { members }]) => [
    union,
    ...members().filter((member): member is Type => typeof member === 'function'),
  ]);
}

function packageVersion(): string {
  const url = new URL('../../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(url, 'utf8')) as { version: string }).version;
}
