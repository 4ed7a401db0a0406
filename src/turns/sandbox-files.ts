import { posix } from 'node:path';
import { httpUrlProblem } from '../common/http-url.js';
import { quote } from '../common/shell-quote.js';
import type { InlineSkill } from '../runtimes/agent-runtime.js';
import { skillFolder } from '../runtimes/runtime-support.js';
import type { SandboxFile, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import type { Repository } from './turn-plan.js';

/** The environment's variables as a file that a shell can source; only its owner can read it. */
export function envFile(layout: SandboxLayout, env: Readonly<Record<string, string>>): SandboxFile {
  const lines = Object.entries(env).map(([key, value]) => `export ${key}=${quote(value)}\n`);
  return { path: `${layout.home}/.session/env`, content: lines.join(''), mode: 0o600 };
}

/** The variable with the grant for git. Its name has no `KEY` or `TOKEN`: some programs hide such variables. */
export const GIT_GRANT = 'SESSION_GRANT_GIT';
/** Below the home; `GIT_CONFIG_SYSTEM` names it. */
export const GIT_CONFIG = '.session/gitconfig';

/** The repositories that git reaches through the gateway. */
export function throughGateway(repositories: readonly Repository[]): Repository[] {
  return repositories.filter(
    ({ url, token }) => token !== undefined && httpUrlProblem(url) === undefined,
  );
}

/**
 * Settings that make git and git LFS send requests for repositories with a token to the gateway, which adds the token.
 * Git authenticates to the gateway with a grant. It is a file of its own, because settings in variables do not reach
 * git LFS in submodules.
 * @param gateway the gateway's address in the sandbox
 */
export function gitConfigFile(
  layout: SandboxLayout,
  repositories: readonly Repository[],
  gateway: string,
): SandboxFile {
  const rules = throughGateway(repositories).map(({ url }) => {
    const path = url.replace(/\/+$/, '').replace(/\.git$/, '');
    const { protocol, host, pathname } = new URL(path);
    const addresses = new Set([path, new URL(path).href]);
    return [
      `[url ${setting(`${gateway}/git/${protocol}${host}${pathname}`)}]`,
      ...[...addresses].map((address) => `\tinsteadOf = ${setting(address)}`),
    ].join('\n');
  });
  const helper = `!f() { test "$1" != get || printf 'username=grant\\npassword=%s\\n' "$${GIT_GRANT}"; }; f`;
  const content = [
    // This file takes the place of the system's own.
    '[include]\n\tpath = /etc/gitconfig',
    `[credential ${setting(gateway)}]\n\thelper =\n\thelper = ${setting(helper)}`,
    ...new Set(rules),
    '',
  ].join('\n');
  return { path: `${layout.home}/${GIT_CONFIG}`, content, mode: 0o644 };
}

/** Quotes a value of a git configuration file. */
function setting(value: string): string {
  return `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`;
}

/** An inline skill as the files that agent CLIs look for. */
export function inlineSkillFiles(folder: string, skill: InlineSkill): SandboxFile[] {
  const root = posix.join(folder, skillFolder(skill));
  const head = skill.content.startsWith('---')
    ? ''
    : `---\nname: ${JSON.stringify(skill.name)}\ndescription: ${JSON.stringify(skill.description ?? skill.name)}\n---\n\n`;
  return [
    { path: `${root}/SKILL.md`, content: head + skill.content },
    ...(skill.files ?? []).map((file) => ({
      // Joined to `/` first, so that no number of `..` can leave the folder.
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
  const target = quote(posix.join(folder, skillFolder(skill)));
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
