import { join } from 'node:path';
import { afterAll, beforeAll, test } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import { ROOT, runTool } from './support/program.js';
import { expectTour, startTourService, type TourService } from './support/tour.js';
import { makeWorkspace, type Workspace } from './support/workspace.js';

const DOCUMENT = join(ROOT, 'openapi.json');

let service: TourService;
let workspace: Workspace;
beforeAll(async () => {
  [service, workspace] = await Promise.all([startTourService(), makeWorkspace()]);
});
afterAll(async () => {
  await service.stop();
  await workspace.remove();
});

const tool = (path: string, ...args: string[]): Promise<void> =>
  runTool(process.execPath, join(ROOT, 'node_modules', path), ...args);

describeWith(
  ['bubblewrap', 'git http-backend'],
  'clients that are generated from OpenAPI 3.1',
  () => {
    test('compile, as strictly as anybody compiles', async () => {
      const { generated, sdks, out } = workspace;
      const hey = ['--input', DOCUMENT, '--output', join(generated, 'hey-api'), '--no-log-file'];
      await tool('@hey-api/openapi-ts/bin/run.js', ...hey);
      const types = ['--output', join(generated, 'openapi-types.d.ts')];
      await tool('openapi-typescript/bin/cli.js', DOCUMENT, ...types);
      await tool(
        'typescript/bin/tsc',
        ...[join(sdks, 'hey-api.ts'), join(sdks, 'openapi-fetch.ts')],
        ...['--strict', '--noUncheckedIndexedAccess', '--skipLibCheck', '--noEmitOnError'],
        ...['--module', 'nodenext', '--target', 'es2024', '--lib', 'es2024,dom,dom.asynciterable'],
        ...['--types', 'node', '--rootDir', join(sdks, '..'), '--outDir', out],
        '--ignoreConfig',
      );
      // Generators and a compiler on a busy machine.
    });

    test('of @hey-api/openapi-ts: drives the service', async () => {
      await expectTour(service, [process.execPath, join(workspace.out, 'sdks', 'hey-api.js')]);
    });

    test('of openapi-typescript and openapi-fetch: drives the service', async () => {
      await expectTour(service, [
        process.execPath,
        join(workspace.out, 'sdks', 'openapi-fetch.js'),
      ]);
    });
  },
);
