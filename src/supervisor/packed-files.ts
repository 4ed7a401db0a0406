import type { SandboxFile } from './calls.js';
import { SandboxError } from './sandbox-error.js';

/**
 * Encodes files for `confine --write-files`: for each file its path, mode and size, each NUL-terminated, followed by
 * its bytes.
 * @throws SandboxError `failed` for a path outside the folders
 */
export function packFiles(files: readonly SandboxFile[], folders: readonly string[]): Buffer {
  return Buffer.concat(
    files.flatMap(({ path, content, mode = 0o644 }) => {
      const parts = path.split('/').slice(1);
      const inside = folders.some((folder) => path.startsWith(`${folder}/`));
      if (!inside || path.includes('\0') || parts.some((part) => ['', '.', '..'].includes(part))) {
        throw new SandboxError('failed', `not a path in the home or the workspace: ${path}`);
      }
      const bytes = Buffer.from(content as string);
      return [Buffer.from(`${path}\0${(mode & 0o777).toString(8)}\0${bytes.length}\0`), bytes];
    }),
  );
}
