import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, test } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import { PYTHON, ROOT, runTool } from './support/program.js';
import { expectTour, startTourService, type TourService } from './support/tour.js';
import { makeWorkspace, type Workspace } from './support/workspace.js';

const PACKAGE = join(ROOT, 'node_modules', '@openapitools', 'openapi-generator-cli');
/** Also holds the libraries that a client for Java needs. */
const JAR = join(PACKAGE, 'bin', 'openapi-generator.jar');
const PARTS = ['models', 'apis', 'supportingFiles'];
/** Generators and compilers on a busy machine. */
const LIMIT_MS = 300_000;
const LEFT_OUT = ['modelTests', 'apiTests', 'modelDocs', 'apiDocs'].map((part) => `${part}=false`);

let service: TourService;
let workspace: Workspace;
beforeAll(async () => {
  [service, workspace] = await Promise.all([startTourService(), makeWorkspace()]);
});
afterAll(async () => {
  await service.stop();
  await workspace.remove();
});

const generate = (language: string, ...options: string[]): Promise<void> =>
  runTool(
    ...['java', '-jar', JAR, 'generate', '-g', language, '-i', join(ROOT, 'openapi-3.0.json')],
    ...['-o', join(workspace.generated, language), ...options],
    ...['--global-property', [...PARTS, ...LEFT_OUT].join(',')],
  );

describeWith(
  ['bubblewrap', 'git http-backend', 'java'],
  'a client that openapi-generator makes of OpenAPI 3.0.3',
  () => {
    describeWith(['python3 with certifi, dateutil, six and urllib3'], 'for Python', () => {
      test(
        'drives the service',
        async () => {
          await generate('python', '--package-name', 'agent_sessions');
          await expectTour(service, [PYTHON, join(workspace.sdks, 'tour.py')]);
        },
        LIMIT_MS,
      );
    });

    test(
      'for Java compiles and drives the service',
      async () => {
        const name = 'com.example.agentsessions';
        await generate(
          'java',
          ...['--library', 'native', '--invoker-package', name],
          ...['--api-package', `${name}.api`, '--model-package', `${name}.model`],
          '--additional-properties=dateLibrary=java8,openApiNullable=false,hideGenerationTimestamp=true',
        );
        const sources = join(workspace.generated, 'java', 'src', 'main', 'java');
        const files = (await readdir(sources, { recursive: true })).filter((file) =>
          file.endsWith('.java'),
        );
        await mkdir(workspace.out, { recursive: true });
        await runTool(
          ...['javac', '-proc:none', '-cp', JAR, '-d', workspace.out],
          join(workspace.sdks, 'Tour.java'),
          ...files.map((file) => join(sources, file)),
        );
        await expectTour(service, ['java', '-cp', `${workspace.out}:${JAR}`, 'Tour']);
      },
      LIMIT_MS,
    );
  },
);
