import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from '@jest/globals';
import type { AgentRuntime } from '../../../src/runtimes/agent-runtime.js';
import { RUNTIMES } from '../../../src/runtimes/registry.js';
import { folderName } from '../../../src/sandboxes/driver/local/programs.js';
import { describeWith } from '../../support/requirements.js';
import { Rig, TEST_CACHE } from './rig.js';

/** A model for each runtime that the scripted endpoint plays. */
const MODELS: Readonly<Record<string, string>> = {
  anthropic: 'claude-scripted',
  openai: 'gpt-scripted',
  google: 'gemini-scripted',
  opencode: 'anthropic/claude-scripted',
};

/** `install`: what is missing is installed; `skip`: none of it is run; else what is in the cache is. */
const MODE = process.env.AGENT_CLI_TESTS;

export interface Cli {
  runtime: AgentRuntime;
  provider: string;
  model: string;
  /** It has no setting that bounds its retries: the turn's timeout does. */
  triesForever: boolean;
  /** Whether it knows the older of the two MCP transports over HTTP. */
  speaksSse: boolean;
}

export const CLIS: readonly Cli[] = RUNTIMES.filter(({ programs }) => programs.length > 0).map(
  (runtime) => {
    const model = MODELS[runtime.provider];
    if (model === undefined) throw new Error(`no scripted model for ${runtime.provider}`);
    const { provider } = runtime;
    return {
      runtime,
      provider,
      model,
      triesForever: provider === 'opencode',
      speaksSse: provider !== 'openai',
    };
  },
);

const isInstalled = ({ runtime }: Cli): boolean =>
  existsSync(join(TEST_CACHE, 'programs', folderName(runtime.programs)));

/** Installs what is missing, for test files whose own services do not reach the registry. */
export async function installMissing(): Promise<void> {
  const missing = MODE === 'install' ? CLIS.filter((cli) => !isInstalled(cli)) : [];
  if (missing.length === 0) return;
  const rig = await Rig.start();
  try {
    for (const { provider, model } of missing) {
      const session = await rig.session({ provider, model }, 'word-installed');
      await rig.finish(session);
      await rig.remove(session);
    }
  } finally {
    await rig.stop();
  }
}

/** `describe` where the CLI may be used; else skipped, with the reason in the name. */
export function describeCli(cli: Cli, body: () => void): void {
  if (MODE === 'install' || (MODE !== 'skip' && isInstalled(cli))) {
    describeWith(['sandboxes'], cli.provider, body);
  } else {
    describe.skip(`${cli.provider} [left to npm run test:runtimes]`, body);
  }
}
