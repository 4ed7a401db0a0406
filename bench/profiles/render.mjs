import { readFile, readdir, writeFile } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { readCallTree } from './call-tree.mjs';
import { toFlameSvg } from './flame-svg.mjs';
import { toSummary } from './summary.mjs';

/**
 * Writes a flame graph and a summary next to every CPU profile in the folder.
 * @param window see `readCallTree`
 * @returns the paths of the written files.
 */
export async function renderProfiles(folder, window) {
  const names = await readdir(folder, { recursive: true });
  const written = [];
  for (const name of names.filter((one) => one.endsWith('.cpuprofile')).toSorted()) {
    const path = join(folder, name);
    const tree = readCallTree(JSON.parse(await readFile(path, 'utf8')), window);
    const base = path.slice(0, -'.cpuprofile'.length);
    const part = window ? `, seconds ${window.from} to ${window.to}` : '';
    const title = `CPU profile of ${titleOf(relative(folder, base), folder)}${part}`;
    await writeFile(`${base}.svg`, toFlameSvg(tree, title));
    await writeFile(`${base}.md`, toSummary(tree, title));
    written.push(`${base}.svg`, `${base}.md`);
  }
  return written;
}

/** Profiles are stored by row, because Node's own names for them are meaningless. */
function titleOf(base, folder) {
  const [row, ...rest] = base.split('/');
  return rest.length > 0 ? row : basename(folder);
}
