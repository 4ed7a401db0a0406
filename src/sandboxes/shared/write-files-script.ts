import type { SandboxFile } from '../sandbox-driver.js';
import { SandboxError } from '../sandbox-error.js';

/**
 * Reads files from standard input and writes them, as the agent and inside the sandbox: whatever links the agent has
 * planted lead nowhere that it could not write itself. A file appears whole, and never through a link at its own name.
 * Arguments: the home folder. Input: per file its path, mode and size, each ended by NUL, and its bytes.
 */
export const WRITE_FILES_SCRIPT = `
set -eu
umask 077
home=$1
parents() {
  [ -d "$1" ] && return
  [ -n "$1" ]
  parents "\${1%/*}"
  case $1 in
    "$home"/.*) mkdir -m 700 -- "$1" ;;
    *) mkdir -m 755 -- "$1" ;;
  esac
}
while IFS= read -r -d '' path; do
  IFS= read -r -d '' mode
  IFS= read -r -d '' size
  parents "\${path%/*}"
  draft="\${path%/*}/.writing-$$"
  rm -f -- "$draft"
  head -c "$size" >"$draft"
  chmod "$mode" -- "$draft"
  mv -fT -- "$draft" "$path"
done
`;

/** The input of {@link WRITE_FILES_SCRIPT}. @throws SandboxError `failed` for a path outside of the folders */
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
