import type { PackageSpec } from '../environments/packages.js';
import type { SandboxLayout } from '../sandboxes/sandbox-driver.js';
import { quote } from './shell-quote.js';
import type { Repository } from './turn-plan.js';

/** What a new sandbox is set up with. */
export interface ProvisionInput {
  layout: SandboxLayout;
  packages: readonly PackageSpec[];
  repositories: readonly Repository[];
  setupScript: string;
}

type Manager = PackageSpec['manager'];

/** All but apt install into the agent's own ~/.local, so that the agent can go on with them. */
const INSTALLERS: Record<
  Manager,
  {
    word: (item: PackageSpec) => string;
    command: string;
    tool: string;
    debian: string;
    each?: true;
  }
> = {
  apt: {
    word: ({ name, version }) => (version ? `${name}=${version}` : name),
    command: 'apt-get -qq update && apt-get -qq install --yes --no-install-recommends',
    tool: 'apt-get',
    debian: '',
  },
  pip: {
    word: ({ name, version }) => (version ? `${name}==${version}` : name),
    command:
      'python3 -m pip install --quiet --user --break-system-packages --no-warn-script-location',
    tool: 'pip3',
    debian: 'python3-pip',
  },
  npm: {
    word: ({ name, version }) => (version ? `${name}@${version}` : name),
    command: 'npm install --global --prefix "$HOME/.local" --no-audit --no-fund --loglevel=error',
    tool: 'npm',
    debian: 'npm',
  },
  cargo: {
    word: ({ name, version }) => (version ? `${name}@${version}` : name),
    command: 'cargo install --quiet --root "$HOME/.local"',
    tool: 'cargo',
    debian: 'cargo',
  },
  gem: {
    word: ({ name, version }) => (version ? `${name}:${version}` : name),
    command: 'gem install --silent --user-install --bindir "$HOME/.local/bin"',
    tool: 'gem',
    debian: 'ruby',
  },
  go: {
    word: ({ name, version }) => `${name}@${version ?? 'latest'}`,
    command: 'GOBIN="$HOME/.local/bin" go install',
    tool: 'go',
    debian: 'golang-go',
    each: true,
  },
};

const HEAD = `set -euo pipefail
export DEBIAN_FRONTEND=noninteractive GIT_TERMINAL_PROMPT=0
step=preparation
trap 'code=$?; [ "$code" -eq 0 ] || echo "$step failed with exit code $code"' EXIT
mkdir -p "$HOME/.local/bin"
`;

// A clone appears under its name only when it is whole, so that a repetition after a crash knows what is done.
const CLONE_FUNCTION = `clone() { # url folder kind ref
  [ -e "$2/.git" ] && return 0
  rm -rf "$2.cloning" && mkdir -p "$(dirname "$2")"
  if [ "$3" = branch ]; then
    git clone --quiet --branch "$4" -- "$1" "$2.cloning"
  else
    git clone --quiet -- "$1" "$2.cloning"
  fi
  if [ "$3" = commit ]; then
    git -C "$2.cloning" cat-file -e "$4^{commit}" 2>/dev/null || git -C "$2.cloning" fetch --quiet origin "$4"
    git -C "$2.cloning" checkout --quiet --detach "$4"
  fi
  mv -T "$2.cloning" "$2"
}
`;

/** A part of the stage `provision_setup`. */
export interface ProvisionScript {
  script: string;
  /** Would it do the same for any other session, without a file of this one? */
  reusable: boolean;
}

/**
 * The scripts of the stage `provision_setup`: packages, clones, then the user's own script. They may run again after a
 * crash. They hold no secret: git finds its credentials in the home. The user's script may build on what was cloned, so
 * only where nothing is, all of it is the same for every session.
 * @returns nothing when there is nothing to do.
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

/** Does setting this up need a root file system that can be written to? npm alone installs into the home. */
export function needsWritableRoot(
  input: Pick<ProvisionInput, 'packages' | 'setupScript'>,
): boolean {
  return input.setupScript.trim() !== '' || input.packages.some((item) => item.manager !== 'npm');
}

function packageSteps(packages: readonly PackageSpec[]): string[] {
  const managers = Object.keys(INSTALLERS) as Manager[];
  return managers.flatMap((manager) => {
    const { word, command, tool, debian, each } = INSTALLERS[manager];
    const words = packages
      .filter((item) => item.manager === manager)
      .map((item) => quote(word(item)));
    if (words.length === 0) return [];
    const steps = [`step=${quote(`installing ${manager} packages`)}`];
    if (debian !== '') {
      steps.push(`command -v ${tool} >/dev/null || { ${INSTALLERS.apt.command} ${debian}; }`);
    }
    if (each) steps.push(...words.map((item) => `${command} ${item}`));
    else steps.push(`${command} ${words.join(' ')}`);
    return steps;
  });
}

function cloneSteps({ repositories, layout }: ProvisionInput): string[] {
  if (repositories.length === 0) return [];
  return [
    CLONE_FUNCTION,
    ...repositories.map(({ url, mount_path: mountPath, checkout }) => {
      const target = quote(`${layout.workspace}/${mountPath}`);
      const ref = checkout?.type === 'branch' ? checkout.name : (checkout?.sha ?? '');
      const kind = checkout?.type ?? 'default';
      return `step=${quote(`cloning ${url}`)}\nclone ${quote(url)} ${target} ${kind} ${quote(ref)}`;
    }),
  ];
}

function setupSteps({ setupScript, layout }: ProvisionInput): string[] {
  if (setupScript.trim() === '') return [];
  let end = 'END_OF_SETUP_SCRIPT';
  while (setupScript.includes(end)) end += '_';
  return [
    `step='the setup script'`,
    `setup=$(mktemp)\ncat >"$setup" <<'${end}'\n${setupScript}\n${end}`,
    `cd ${quote(layout.workspace)}\nbash "$setup" </dev/null`,
  ];
}
