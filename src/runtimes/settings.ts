import type { SandboxFile, SandboxLayout } from '../sandboxes/sandbox-driver.js';

/** A file that only the agent's user can read: all of them may hold keys. */
export function privateFile(path: string, content: string): SandboxFile {
  return { path, content, mode: 0o600 };
}

/** The same with JSON in it. */
export function privateJson(path: string, content: unknown): SandboxFile {
  return privateFile(path, `${JSON.stringify(content, null, 2)}\n`);
}

/** Variables as a file that a shell can source. */
export function keyFile(
  layout: SandboxLayout,
  variables: Readonly<Record<string, string>>,
): SandboxFile {
  const lines = Object.entries(variables).map(
    ([name, value]) => `export ${name}='${value.replaceAll("'", `'\\''`)}'\n`,
  );
  return privateFile(`${layout.home}/.session/runtime-env`, lines.join(''));
}

/** Leaves out what is undefined. */
export function defined(
  variables: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(variables).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  );
}

/** A prompt that no program takes for one of its own commands: those begin with a slash as the very first character. */
export function plainPrompt(prompt: string): string {
  return prompt.startsWith('/') ? ` ${prompt}` : prompt;
}
