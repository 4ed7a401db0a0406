import { quote } from '../common/shell-quote.js';
import type { PackageSpec } from '../environments/packages.js';
import type { SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import type { Repository } from './turn-plan.js';

/** The packages, repositories and script of a new sandbox. */
export interface ProvisionInput {
  layout: SandboxLayout;
  packages: readonly PackageSpec[];
  repositories: readonly Repository[];
  setupScript: string;
}

type Manager = PackageSpec['manager'];

/** All package managers except apt install into the agent's own ~/.local, so that the agent can install more itself. */
const INSTALLERS: Record<
  Manager,
  {
    /** The package as arguments of the package manager. */
    words: (item: PackageSpec) => string[];
    command: string;
    tool: string;
    debian: string;
    /** One command for each package. */
    each?: true;
  }
> = {
  apt: {
    words: ({ name, version }) => [version ? `${name}=${version}` : name],
    command: 'apt-get -qq update && apt-get -qq install --yes --no-install-recommends',
    tool: 'apt-get',
    debian: '',
  },
  pip: {
    // A version without an operator is an exact one.
    words: ({ name, version = '' }) => [
      `${name}${/^[A-Za-z0-9]/.test(version) ? '==' : ''}${version}`,
    ],
    command:
      'python3 -m pip install --quiet --user --break-system-packages --no-warn-script-location',
    tool: 'pip3',
    debian: 'python3-pip',
  },
  npm: {
    words: ({ name, version }) => [version ? `${name}@${version}` : name],
    command: 'npm install --global --prefix "$HOME/.local" --no-audit --no-fund --loglevel=error',
    tool: 'npm',
    debian: 'npm',
  },
  cargo: {
    words: ({ name, version }) => [version ? `${name}@${version}` : name],
    command: 'cargo install --quiet --root "$HOME/.local"',
    tool: 'cargo',
    debian: 'cargo',
  },
  gem: {
    words: ({ name, version }) => [name, ...(version ? ['--version', version] : [])],
    command: 'gem install --silent --user-install --bindir "$HOME/.local/bin"',
    tool: 'gem',
    debian: 'ruby',
    each: true,
  },
  go: {
    // Versions of Go modules begin with a v, so 1.2.3 becomes v1.2.3.
    words: ({ name, version = 'latest' }) => [
      `${name}@${version.replace(/^([<>]=?)?(?=\d+\.)/, '$1v')}`,
    ],
    command: 'GOBIN="$HOME/.local/bin" go install',
    tool: 'go',
    debian: 'golang-go',
    each: true,
  },
};

const HEAD = `set -euo pipefail
export DEBIAN_FRONTEND=noninteractive GIT_TERMINAL_PROMPT=0
step=preparation
traced=
finish() { # code command
  [ "$1" -ne 0 ] || return 0
  [ -n "$traced" ] || echo "failed command: \${2:0:120}" >&2
  echo "$step failed with exit code $1"
}
trap 'finish "$?" "$BASH_COMMAND"' EXIT
mkdir -p "$HOME/.local/bin"
`;

/** In a clone's `.git`: the commit that was checked out. */
const BASE_FILE = 'agent-session-base';

// A clone gets its name only when it is complete, so that a second run after a crash skips complete clones.
const CLONE_FUNCTION = `clone() { # url folder kind ref draft
  [ -e "$2/.git" ] && return 0
  rm -rf "$5" && mkdir -p "$(dirname "$2")"
  if [ "$3" = branch ]; then
    git clone --quiet --branch "$4" -- "$1" "$5"
  else
    git clone --quiet -- "$1" "$5"
  fi
  if [ "$3" = commit ]; then
    git -C "$5" cat-file -e "$4^{commit}" 2>/dev/null || git -C "$5" fetch --quiet origin "$4"
    git -C "$5" checkout --quiet --detach "$4"
  fi
  # What the session's changes are compared with. An empty repository has none.
  git -C "$5" rev-parse --quiet --verify HEAD >"$5/.git/${BASE_FILE}" || true
  mv -T "$5" "$2"
}
`;

/** Read by the user's script first: if it fails, it names the command that failed. Its own EXIT trap replaces this one. */
const NAME_COMMAND = `unset BASH_ENV
trap 'code=$?; [ "$code" -eq 0 ] || echo "failed command: \${BASH_COMMAND:0:120}" >&2' EXIT`;

/** A part of the stage `provision_setup`. */
export interface ProvisionScript {
  script: string;
  /** Does the script depend on nothing but the environment? Then its result can be used for any session. */
  reusable: boolean;
}

/**
 * The scripts of the stage `provision_setup`: packages, clones, then the user's own script. They may run again after a
 * crash. They contain no secrets: git finds its credentials in the home folder. The user's script may use the clones,
 * so it is the same for every session only if there are no clones.
 * @returns an empty list if there is nothing to do.
 */
export function provisionScripts(input: ProvisionInput): ProvisionScript[] {
  const packages = packageSteps(input.packages);
  const clones = cloneSteps(input);
  const setup = setupSteps(input);
  const alone = clones.length === 0;
  return [
    { steps: alone ? [...packages, ...setup] : packages, reusable: true },
    { steps: alone ? [] : [...clones, ...setup], reusable: false },
  ]
    .filter(({ steps }) => steps.length > 0)
    .map(({ steps, reusable }) => ({ script: [HEAD, ...steps].join('\n'), reusable }));
}

/** Prints the commit that each clone began with, one line each, or an empty one. */
export function basesScript({
  repositories,
  layout,
}: Pick<ProvisionInput, 'repositories' | 'layout'>): string {
  return repositories
    .map(({ mount_path: path }) => quote(`${layout.workspace}/${path}/.git/${BASE_FILE}`))
    .map((file) => `IFS= read -r -n 64 base <${file} || base=; echo "$base"`)
    .join('\n');
}

/** @returns the commits by mount path; without those that {@link basesScript} did not find */
export function readBases(
  output: string,
  repositories: readonly Repository[],
): Record<string, string> {
  const lines = output.split('\n');
  // Of very many, the output is cut at its beginning.
  const first = lines.length - 1 - repositories.length;
  return Object.fromEntries(
    repositories
      .map(({ mount_path: path }, index) => [path, lines[first + index] ?? ''] as const)
      .filter(([, base]) => /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(base)),
  );
}

/**
 * Does the setup need a writable root file system? Only npm packages do not, because npm installs into the home folder.
 */
export function needsWritableRoot(
  input: Pick<ProvisionInput, 'packages' | 'setupScript'>,
): boolean {
  return input.setupScript.trim() !== '' || input.packages.some((item) => item.manager !== 'npm');
}

function packageSteps(packages: readonly PackageSpec[]): string[] {
  const managers = Object.keys(INSTALLERS) as Manager[];
  return managers.flatMap((manager) => {
    const { words, command, tool, debian, each } = INSTALLERS[manager];
    const items = packages
      .filter((item) => item.manager === manager)
      .map((item) => words(item).map(quote).join(' '));
    if (items.length === 0) return [];
    const steps = [`step=${quote(`installing ${manager} packages`)}`];
    if (debian !== '') {
      steps.push(`command -v ${tool} >/dev/null || { ${INSTALLERS.apt.command} ${debian}; }`);
    }
    if (each) steps.push(...items.map((item) => `${command} ${item}`));
    else steps.push(`${command} ${items.join(' ')}`);
    return steps;
  });
}

function cloneSteps({ repositories, layout }: ProvisionInput): string[] {
  if (repositories.length === 0) return [];
  const draft = quote(`${layout.workspace}/${draftName(repositories)}`);
  return [
    CLONE_FUNCTION,
    ...repositories.map(({ url, mount_path: mountPath, checkout }) => {
      const target = quote(`${layout.workspace}/${mountPath}`);
      const ref = checkout?.type === 'branch' ? checkout.name : (checkout?.sha ?? '');
      const kind = checkout?.type ?? 'default';
      return `step=${quote(`cloning ${url}`)}\nclone ${quote(url)} ${target} ${kind} ${quote(ref)} ${draft}`;
    }),
  ];
}

/** A folder in the workspace, at or below which no repository is mounted. */
function draftName(repositories: readonly Repository[]): string {
  const taken = new Set(repositories.map(({ mount_path: path }) => path.split('/')[0]));
  let name = '.cloning';
  while (taken.has(name)) name += '_';
  return name;
}

function setupSteps({ setupScript, layout }: ProvisionInput): string[] {
  if (setupScript.trim() === '') return [];
  let end = 'END_OF_SETUP_SCRIPT';
  while (setupScript.includes(end)) end += '_';
  return [
    `step='the setup script'`,
    `setup=$(mktemp)\ncat >"$setup" <<'${end}'\n${setupScript}\n${end}`,
    `traced=$(mktemp)\ncat >"$traced" <<'END_OF_TRACE'\n${NAME_COMMAND}\nEND_OF_TRACE`,
    `cd ${quote(layout.workspace)}\nBASH_ENV="$traced" bash "$setup" </dev/null`,
    'rm -f "$setup" "$traced"',
  ];
}

/** Describes the setup in one sentence for people. */
export function setupSentence({ packages, repositories, setupScript }: ProvisionInput): string {
  const parts = [
    ...new Set(packages.map(({ manager }) => `${manager} packages`)),
    ...(repositories.length > 0 ? ['repositories'] : []),
    ...(setupScript === '' ? [] : ['setup script']),
  ];
  return parts.length === 0
    ? 'Building the environment'
    : `Building the environment: ${parts.join(', ')}`;
}
