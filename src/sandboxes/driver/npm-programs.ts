import { quote } from '../../common/shell-quote.js';
import { type NpmProgram, packageSpec } from './sandbox-driver.js';

/** The folder of installed programs in a sandbox with its own root file system. */
export const PROGRAM_FOLDER = '/opt/agent-programs';
/** The folder on the PATH with links to them. */
export const PROGRAM_LINKS = '/usr/local/bin';

/**
 * The script that installs programs in one folder and links them from the PATH.
 * @param inPath the folder on the PATH for links, unless the folder of installed programs has one that is on it (`bin`)
 * @param withoutNpm says what to do if there is no npm; `PROGRAMS` stands for the names of the programs
 */
export function installPrograms(
  programs: readonly NpmProgram[],
  withoutNpm: string,
  inPath: string | null = PROGRAM_LINKS,
): string {
  const specs = programs.map((program) => quote(packageSpec(program))).join(' ');
  const links = programs.map((program) => {
    const entries = program.entries.map((entry) =>
      quote(`${PROGRAM_FOLDER}/node_modules/${entry.replaceAll('{arch}', process.arch)}`),
    );
    return `link ${quote(program.bin)} ${entries.join(' ')}`;
  });
  return `set -e
command -v npm >/dev/null || {
  echo ${quote(withoutNpm.replace('PROGRAMS', programs.map(({ bin }) => bin).join(' and ')))}
  exit 1
}
link() {
  name=$1
  shift
  for entry; do
    [ -e "$entry" ] || continue
    chmod 755 "$entry"
    ln -sf "$entry" "${PROGRAM_FOLDER}/bin/$name"
    ${inPath === null ? ':' : `ln -sf "${PROGRAM_FOLDER}/bin/$name" "${inPath}/$name"`}
    return
  done
  echo "$name has no program for this machine"
  exit 1
}
npm install --prefix ${PROGRAM_FOLDER} --ignore-scripts --no-audit --no-fund --loglevel=error ${specs}
mkdir -p ${PROGRAM_FOLDER}/bin ${inPath ?? ''}
${links.join('\n')}
rm -rf ~/.npm`;
}
