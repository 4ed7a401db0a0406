import { cp, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ROOT } from './program.js';

/** A copy of the examples to generate clients beside, where the project's packages are found. */
export interface Workspace {
  /** examples/sdks */
  readonly sdks: string;
  /** Where the examples look for generated code. */
  readonly generated: string;
  /** For what is compiled. */
  readonly out: string;
  remove(): Promise<void>;
}

export async function makeWorkspace(): Promise<Workspace> {
  const folder = await mkdtemp(join(ROOT, 'dist', 'sdk-'));
  await cp(join(ROOT, 'examples'), join(folder, 'examples'), { recursive: true });
  const sdks = join(folder, 'examples', 'sdks');
  return {
    sdks,
    generated: join(sdks, 'generated'),
    out: join(folder, 'out'),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
