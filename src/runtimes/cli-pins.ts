import type { NpmProgram } from '../sandboxes/driver/sandbox-driver.js';

/**
 * The agent programs and the versions that the runtimes were written for and are tested with. Changing a version is a
 * change of behaviour: run `npm run test:runtimes` afterwards.
 */
export const CLAUDE_CODE: NpmProgram = {
  bin: 'claude',
  package: '@anthropic-ai/claude-code',
  version: '2.1.329',
  entries: [
    '@anthropic-ai/claude-code-linux-{arch}/claude',
    '@anthropic-ai/claude-code-linux-{arch}-musl/claude',
  ],
};

export const CODEX: NpmProgram = {
  bin: 'codex',
  package: '@openai/codex',
  version: '0.169.0',
  entries: ['@openai/codex/bin/codex.js'],
};

export const GEMINI_CLI: NpmProgram = {
  bin: 'gemini',
  package: '@google/gemini-cli',
  version: '0.61.0',
  entries: ['@google/gemini-cli/bundle/gemini.js'],
};

export const OPENCODE: NpmProgram = {
  bin: 'opencode',
  package: 'opencode-ai',
  version: '1.18.33',
  // The baseline build also runs on processors without AVX2.
  entries: [
    'opencode-linux-{arch}-baseline/bin/opencode',
    'opencode-linux-{arch}/bin/opencode',
    'opencode-linux-{arch}-baseline-musl/bin/opencode',
    'opencode-linux-{arch}-musl/bin/opencode',
  ],
};

/** What OpenCode searches files and finds skills with; it would otherwise download it. */
export const RIPGREP: NpmProgram = {
  bin: 'rg',
  package: '@vscode/ripgrep',
  version: '1.18.0',
  entries: ['@vscode/ripgrep-linux-{arch}/bin/rg'],
};
