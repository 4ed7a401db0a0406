import { packageSpec, type NpmProgram } from '../npm-program.js';

const FOLDER = '/opt/agent-programs';

/** Where programs that the image lacks are installed. */
export function installPrograms(programs: readonly NpmProgram[]): string {
  const quote = (text: string): string => `'${text.replaceAll(`'`, `'\\''`)}'`;
  const specs = programs.map((program) => quote(packageSpec(program))).join(' ');
  const links = programs.map((program) => {
    const entries = program.entries.map((entry) =>
      quote(`${FOLDER}/node_modules/${entry.replaceAll('{arch}', process.arch)}`),
    );
    return `link ${quote(program.bin)} ${entries.join(' ')}`;
  });
  return `set -e
command -v npm >/dev/null || {
  echo "the sandbox image has neither ${programs.map(({ bin }) => bin).join(' and ')} nor npm to install it with: use the image of sandbox/Dockerfile"
  exit 1
}
link() {
  name=$1
  shift
  for entry; do
    [ -e "$entry" ] || continue
    chmod 755 "$entry"
    ln -sf "$entry" "/usr/local/bin/$name"
    return
  done
  echo "$name has no program for this machine"
  exit 1
}
npm install --prefix ${FOLDER} --ignore-scripts --no-audit --no-fund --loglevel=error ${specs}
${links.join('\n')}
rm -rf ~/.npm`;
}

/** A command that ends with 0 if all these names are on the PATH. */
export function lookUp(programs: readonly NpmProgram[]): string[] {
  const script = 'for name; do command -v -- "$name" >/dev/null || exit 1; done';
  return ['/bin/bash', '--norc', '-c', script, 'bash', ...programs.map(({ bin }) => bin)];
}
