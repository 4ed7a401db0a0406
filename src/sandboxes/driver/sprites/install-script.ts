import { quote } from '../../../common/shell-quote.js';
import { HOME, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import { NO_FILE, PRELOAD_FILE } from '../runtime-files.js';
import type { GatewayLink } from '../../../supervisor/relay/relay-thread.js';
import { AGENT, FOLDER, GATEWAY_LINK, LAUNCHES, TMP } from './options.js';

/** The exit codes of the script, apart from those of its commands. */
export const NEEDS_FILES = 71;
export const NEEDS_NODE = 72;
export const OTHER_PROCESSOR = 73;
/** The exit code of {@link REMOVE_VERSION} if something of the version still runs. */
export const IN_USE = 75;
/** A version that no service has used for so long may be removed: until then, an upgrade may still be under way. */
const UNUSED_MINUTES = 60;

/** Programs of the vendor's image that are linked where agents find them. */
const LINKED =
  'node npm npx corepack python3 pip pip3 go cargo rustc ruby gem bun deno claude codex gemini opencode';

/**
 * The script that prepares a sprite, as root. It may be run again at any time. It has the secret of the sandbox and must
 * not be an argument of a command. It prints the versions of the runtime that may be removed. Its arguments: the folder
 * of the runtime, the name of the dynamic loader, the archive, if it was uploaded, and the PATH of the image.
 * @param gateway what the sandbox reaches it with; a process without keys has no link and leaves the present one
 */
export function installScript(
  architecture: string,
  gateway: { link: GatewayLink | undefined } | undefined,
): string {
  const link = gateway?.link && quote(JSON.stringify(gateway.link));
  const writeLink =
    gateway === undefined
      ? `rm -f ${GATEWAY_LINK}`
      : link === undefined
        ? ':'
        : `(umask 077; printf %s ${link} > ${GATEWAY_LINK}.new; mv ${GATEWAY_LINK}.new ${GATEWAY_LINK})`;
  return `set -e
umask 022
runtime=$1 loader=$2 archive=$3 image_path=$4
machine=$(uname -m)
[ "$machine" = ${architecture} ] || { echo "$machine"; exit ${OTHER_PROCESSOR}; }
mkdir -p ${FOLDER}
chown 0:0 ${FOLDER}
chmod 700 ${FOLDER}
if ! [ -e "$runtime/complete" ]; then
  [ -n "$archive" ] || exit ${NEEDS_FILES}
  # A folder of its own, because an attempt whose answer was lost may still run. Those of attempts that were ended are old.
  find ${FOLDER} -maxdepth 1 -name 'runtime-*.new.*' -mmin +60 -exec rm -rf {} +
  new="$runtime.new.$$"
  mkdir "$new"
  tar -xzf "$archive" --no-same-owner -C "$new"
  if ! [ -e "$new/bin/node" ]; then
    node=$(PATH=$image_path command -v node) || exit ${NEEDS_NODE}
    node=$(PATH=$image_path "$node" -p 'process.versions.node.split(".")[0] >= 24 ? process.execPath : ""') || exit ${NEEDS_NODE}
    [ -n "$node" ] || exit ${NEEDS_NODE}
    mkdir -p "$new/bin" "$new/lib"
    cp -L "$node" "$new/bin/node"
    for library in $(ldd "$node" | grep -o '/[^ ]*'); do cp -L "$library" "$new/lib/"; done
    [ -e "$new/lib/$loader" ] || exit ${NEEDS_NODE}
    LC_ALL=C sed -i ${quote(`s#${PRELOAD_FILE}#${NO_FILE}#g`)} "$new/lib/$loader"
    chmod 555 "$new/bin/node" "$new/lib/"*
  fi
  : > "$new/complete"
  sync
  mv -T "$new" "$runtime" || rm -rf "$new"
fi
[ -z "$archive" ] || rm -f "$archive"
: > "$runtime/complete"
for old in ${FOLDER}/runtime-*/complete; do
  old=\${old%/complete}
  [ "$old" = "$runtime" ] || [ -z "$(find "$old/complete" -mmin +${UNUSED_MINUTES})" ] || echo "old \${old##*-} "
done
${writeLink}
grep -q '^agent:' /etc/group || echo 'agent:x:${AGENT}:' >> /etc/group
grep -q '^agent:' /etc/passwd || echo 'agent:x:${AGENT}:${AGENT}::${HOME}:/bin/bash' >> /etc/passwd
mkdir -p ${LAUNCHES} ${TMP} ${HOME} ${WORKSPACE}
chmod 700 ${LAUNCHES}
chmod 1777 ${TMP}
for folder in ${HOME} ${WORKSPACE}; do
  [ "$(stat -c %u "$folder")" = ${AGENT} ] || { chown ${AGENT}:${AGENT} "$folder"; chmod 700 "$folder"; }
done
for name in ${LINKED}; do
  command -v "$name" >/dev/null || {
    found=$(PATH=$image_path command -v "$name") && ln -s "$found" "/usr/local/bin/$name" || true
  }
done
`;
}

/** The versions that the script has printed. */
export function oldVersions(output: string): string[] {
  return [...output.matchAll(/\bold ([0-9a-f]{16})(?![^ ])/g)].map(([, digest = '']) => digest);
}

/**
 * Removes another version of the runtime, as root, unless something of it runs, apart from its service. Its arguments:
 * the folder, `check` or `remove`, and the socket.
 */
export const REMOVE_VERSION = `for process in /proc/[0-9]*; do
  line=$(tr '\\0' ' ' < "$process/cmdline" 2>/dev/null) || continue
  case $line in *"$1/dist/src/supervisor/daemon.js "*) ;; *"$1/"*) exit ${IN_USE} ;; esac
done
[ "$2" = check ] || rm -rf "$1" "$3"`;
