import { existsSync, readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { dirname, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT } from '../../scripts/lib/project.mjs';

/** Times that V8 reports without a function. */
const PSEUDO = new Map([
  ['(garbage collector)', 'gc'],
  ['(program)', 'native'],
  ['(idle)', 'idle'],
  ['(root)', 'root'],
]);

/** Merges all code that runs while the process loads into one box, because it would hide everything that runs later. */
export const LOADING = '(loading modules)';

const maps = new Map();

/**
 * Describes a function of a profile by its name and its place in the source instead of the build.
 * @returns `label`; `kind`: own, library, node, gc, native, idle or root; `group`: the file or the package.
 */
export function describeFrame({ functionName, url, lineNumber, columnNumber }) {
  const pseudo = PSEUDO.get(functionName);
  if (pseudo) return { label: functionName, kind: pseudo, group: functionName };
  const name = functionName || '(anonymous)';
  if (url.startsWith('node:internal/modules/'))
    return { label: LOADING, kind: 'node', group: LOADING };
  if (url.startsWith('node:')) return { label: `${name} ${url}`, kind: 'node', group: url };
  if (!url.startsWith('file:')) return { label: name, kind: 'native', group: 'V8 and C++' };
  const path = fileURLToPath(url);
  const packageName = /^.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1];
  if (packageName)
    return { label: `${name} (${packageName})`, kind: 'library', group: packageName };
  const place = originalPlace(path, lineNumber, columnNumber);
  return { label: `${name} ${place.file}:${place.line}`, kind: 'own', group: place.file };
}

function originalPlace(path, line, column) {
  const entry = mapOf(path)?.findEntry(line, column);
  const built = { file: relative(ROOT, path), line: line + 1 };
  if (entry?.originalSource === undefined) return built;
  const source = entry.originalSource.startsWith('file:')
    ? fileURLToPath(entry.originalSource)
    : resolve(dirname(path), entry.originalSource);
  return { file: relative(ROOT, source), line: entry.originalLine + 1 };
}

function mapOf(path) {
  if (!maps.has(path)) {
    const file = `${path}.map`;
    const map = existsSync(file) && new SourceMap(JSON.parse(readFileSync(file, 'utf8')));
    maps.set(path, map || undefined);
  }
  return maps.get(path);
}
