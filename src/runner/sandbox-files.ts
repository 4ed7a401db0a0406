import { posix } from 'node:path';
import type { InlineSkill } from '../runtimes/agent-runtime.js';
import type { SandboxFile, SandboxLayout } from '../sandboxes/sandbox-driver.js';
import { quote } from './shell-quote.js';
import type { Repository } from './turn-plan.js';

/** The environment's variables as a file that a shell can source; only its owner can read it. */
export function envFile(layout: SandboxLayout, env: Readonly<Record<string, string>>): SandboxFile {
  const lines = Object.entries(env).map(([key, value]) => `export ${key}=${quote(value)}\n`);
  return { path: `${layout.home}/.session/env`, content: lines.join(''), mode: 0o600 };
}

/** Lets git find a repository's token by its address, so that it stands in no remote and in no argument. */
export function gitCredentialFiles(
  layout: SandboxLayout,
  repositories: readonly Repository[],
): SandboxFile[] {
  const credentials = repositories.flatMap(({ url, token }) => {
    if (token === undefined) return [];
    const address = new URL(url);
    address.username = 'x-access-token';
    address.password = encodeURIComponent(token);
    return [`${address.href}\n`];
  });
  return [
    { path: `${layout.home}/.git-credentials`, content: credentials.join(''), mode: 0o600 },
    {
      path: `${layout.home}/.gitconfig`,
      content: '[credential]\n\thelper = store\n\tuseHttpPath = true\n',
      mode: 0o644,
    },
  ];
}

/** An inline skill as the files that agent CLIs look for. */
export function inlineSkillFiles(folder: string, skill: InlineSkill): SandboxFile[] {
  const root = posix.join(folder, folderName(skill.name));
  const head = skill.content.startsWith('---')
    ? ''
    : `---\nname: ${JSON.stringify(skill.name)}\ndescription: ${JSON.stringify(skill.description ?? skill.name)}\n---\n\n`;
  return [
    { path: `${root}/SKILL.md`, content: head + skill.content },
    ...(skill.files ?? []).map((file) => ({
      // Joined below the root first: no number of `..` leaves it.
      path: root + posix.join('/', file.path),
      content: file.content,
    })),
  ];
}

/** Copies a skill out of a git repository into the folder where the CLI looks. Runs as the agent. */
export function gitSkillScript(
  folder: string,
  skill: { url: string; ref?: string; path?: string },
): string {
  const path = posix.join('/', skill.path ?? '');
  const base = path === '/' ? skill.url.replace(/\/+$/, '').replace(/\.git$/, '') : path;
  const target = quote(posix.join(folder, folderName(posix.basename(base))));
  return [
    'set -euo pipefail',
    'export GIT_TERMINAL_PROMPT=0',
    'source=$(mktemp -d)',
    `git clone --quiet -- ${quote(skill.url)} "$source"`,
    skill.ref
      ? `git -C "$source" checkout --quiet --detach ${quote(skill.ref)} -- 2>/dev/null || git -C "$source" checkout --quiet --detach ${quote(`origin/${skill.ref}`)}`
      : '',
    `found="$source"${quote(path)}`,
    '[ -f "$found/SKILL.md" ] || { echo "there is no SKILL.md in the skill\'s folder"; exit 1; }',
    `mkdir -p ${target} && cp -R "$found/." ${target} && rm -rf "$source" ${target}/.git`,
  ].join('\n');
}

function folderName(name: string): string {
  return name.replaceAll(/[^\w.-]+/g, '-').replace(/^\.+/, '') || 'skill';
}
