import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { installPrograms } from '../npm-programs.js';
import type { NetworkPolicy, ProvideProgramsOptions, ScriptResult } from '../sandbox-driver.js';

const NARROW_LIMIT_MS = 60_000;

/** What installing programs needs of the sprite. */
interface ProgramSprite {
  hasPrograms(names: readonly string[]): Promise<boolean>;
  packageHosts(): Promise<readonly string[]>;
  restrict(network: NetworkPolicy, signal: AbortSignal): Promise<void>;
  /** Runs a script as root. */
  run(script: string): Promise<ScriptResult>;
}

/**
 * Installs programs that the sprite does not have, with its own npm. Meanwhile its network policy also allows the hosts
 * of package managers; afterwards it is `network`, however the installation ended.
 * @throws SandboxError `failed` with the end of npm's output
 */
export async function providePrograms(
  { programs, network, signal, onSharedWork }: ProvideProgramsOptions,
  sprite: ProgramSprite,
): Promise<void> {
  const names = programs.map(({ bin }) => bin);
  if (await sprite.hasPrograms(names)) {
    // Whoever installed them may have ended before the network was closed again.
    if (network.mode === 'limited') await sprite.restrict(network, signal);
    return;
  }
  onSharedWork?.(`Installing ${names.join(' and ')}`);
  try {
    const allowedHosts = [...network.allowedHosts, ...(await sprite.packageHosts())];
    // It may take effect although its caller gives up before the answer arrives.
    await sprite.restrict({ ...network, allowedHosts }, signal);
    const missing = 'the sprite has neither PROGRAMS nor npm to install it with';
    const { exitCode, outputTail } = await sprite.run(installPrograms(programs, missing));
    if (exitCode !== 0) throw new SandboxError('failed', outputTail.trim());
  } finally {
    // Scripts of the session may follow.
    await sprite.restrict(network, AbortSignal.timeout(NARROW_LIMIT_MS));
    onSharedWork?.(null);
  }
}
