import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const PRELOAD = pathToFileURL(join(import.meta.dirname, 'loaded-modules.fixture.mjs')).href;

/** For NODE_OPTIONS: the process then says which packages of OpenTelemetry it loads. */
export const LIST_MODULES = `--import=${PRELOAD}`;

/** The packages that a process has said to load, without the scope, each once. */
export function modulesLoadedBy(output: string): string[] {
  const all = [...output.matchAll(/^loaded @opentelemetry\/(\S+)$/gm)].map(([, name = '']) => name);
  return [...new Set(all)].sort();
}
