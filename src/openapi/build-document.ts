import { Injectable, type INestApplication, type Type } from '@nestjs/common';
import { type OpenAPIObject, DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { type OpenApiVersion, replaceUnions, nameUnions, tidySchemas } from './schemas.js';
import { readFileSync } from 'node:fs';
import { unions } from '../common/openapi/decorators.js';
import type { AppConfig } from '../config/app-config.js';
import { addCommonAnswers } from './common-answers.js';

/** The OpenAPI documents. Built on first use, because few processes ever serve them. */
@Injectable()
export class ApiDocument {
  private build: ((version: OpenApiVersion) => OpenAPIObject) | undefined;
  private readonly json = new Map<OpenApiVersion, Buffer>();

  /** Sets the function that builds a document, which needs the whole application. */
  describedBy(build: (version: OpenApiVersion) => OpenAPIObject): void {
    this.build = build;
  }

  /** The document as JSON. */
  bytes(version: OpenApiVersion): Buffer {
    if (!this.build) throw new Error('The builder of the document is not set');
    const json = this.json.get(version) ?? Buffer.from(JSON.stringify(this.build(version)));
    this.json.set(version, json);
    return json;
  }
}

/** The introduction of the document. Markdown. */
export const DESCRIPTION = `
Runs AI coding agents on demand inside isolated sandboxes and streams their output.

* An **agent** is a template: provider, model, system prompt, skills, tool servers.
* An **environment** says what a sandbox is made of: packages, variables, a setup script, a network policy.
* A **session** is one execution of an agent in a sandbox. Creating one is asynchronous: it answers 202, and the output
  comes as Server-Sent Events. A completed session takes further prompts in the same sandbox.
  Files in its home, workspace, \`/tmp\` and \`/var/tmp\` persist from the setup script on, as does installed software; all
  of it counts as disk. \`/run\` and \`/dev/shm\` begin empty with each turn, and processes started in the background end
  with their turn.

**Access.** Every request carries \`Authorization: Bearer <token>\`. Resources belong to the token's user; what belongs to
another user is answered with 404, as if it were not there.

**Values.** Ids are lower-case UUIDs that the server assigns. They are taken in any case; anything else in their place is a
404, in paths and in bodies. Timestamps are ISO
8601 in UTC with microseconds. Members of a body that are not known are ignored. Secrets (\`env_vars\`, \`env\` and \`headers\`
of tool servers, \`authorization_token\`) can be written and never read. Text must not hold U+0000 or unpaired surrogates.

**Errors.** The body of every error is JSON with \`detail\`: a sentence, or for fields of a body that are missing or of the
wrong type a list (422). Besides the answers that each operation lists, a path that there is not is a 404, a method that a
path does not have a 405 with \`Allow\`, a URL or request that is malformed a 400, headers that are too large or too many
a 431, an \`Expect\` other than \`100-continue\` a 417, more requests than the operator allows a 429 with
\`Retry-After\`. \`HEAD\` is answered like \`GET\`, without the body.

**Lists** hold everything, newest first. With \`limit\` (1 to 1000) or \`after\` (the last item that was received) they come in
parts, and \`has_more\` says whether there is more; an \`after\` that names nothing in the list, such as an item that was
deleted since, is a 400.

**Versions.** Agents and environments have a \`version\`, which a \`PUT\` must name. If somebody else was faster, it is a
409: read the resource again and retry. There is no version in paths; members and event types may be added, so ignore
what you do not know.
`.trim();

/** Tag → description, in the order in which they are shown. */
export const TAGS = {
  agents: 'Templates for sessions, with a history of versions.',
  environments: 'What sandboxes are made of, with a history of versions.',
  sessions: 'Executions of agents: create, watch, continue, terminate.',
  operator:
    'For operators only (`user create --operator`): workers, queue, sandboxes, users and tokens. For everybody else, these paths do not exist.',
  operations: 'For load balancers, orchestrators and generators of clients. Open without a token.',
};

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
  return [...unions()].flatMap(([union, members]) => [
    union,
    ...Object.values<object>(members()).filter(
      (member): member is Type => typeof member === 'function',
    ),
  ]);
}

function packageVersion(): string {
  const url = new URL('../../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(url, 'utf8')) as { version: string }).version;
}
