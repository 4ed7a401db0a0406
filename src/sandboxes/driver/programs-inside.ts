import { SandboxError } from '../../supervisor/sandbox-error.js';
import { installPrograms } from './npm-programs.js';
import type { NetworkPolicy, ProvideProgramsOptions, ScriptResult } from './sandbox-driver.js';

const NARROW_LIMIT_MS = 60_000;

/** What installing programs needs of a sandbox. */
interface SandboxWithNpm {
  hasPrograms(names: readonly string[]): Promise<boolean>;
  packageHosts(): Promise<readonly string[]>;
  restrict(network: NetworkPolicy, signal: AbortSignal): Promise<void>;
  /** Runs a script that installs. */
  run(script: string): Promise<ScriptResult>;
  /** The folder on the PATH for links to the programs; see {@link installPrograms}. */
  inPath?: string | null;
  /** Says what to do if there is no npm; see {@link installPrograms}. */
  withoutNpm: string;
}

/**
 * Installs programs that a sandbox does not have, inside it, with its own npm. Meanwhile its network policy also allows
 * the hosts of package managers; afterwards it is `network`, however the installation ended.
 * @throws SandboxError `failed` with the end of npm's output
 */
export async function provideProgramsInside(
  { programs, network, signal, onSharedWork }: ProvideProgramsOptions,
  sandbox: SandboxWithNpm,
): Promise<void> {
  const names = programs.map(({ bin }) => bin);
  if (await sandbox.hasPrograms(names)) {
    // Whoever installed them may have ended before the network was closed again.
    if (network.mode === 'limited') await sandbox.restrict(network, signal);
    return;
  }
  onSharedWork?.(`Installing ${names.join(' and ')}`);
  try {
    const allowedHosts = [...network.allowedHosts, ...(await sandbox.packageHosts())];
    // It may take effect although its caller gives up before the answer arrives.
    await sandbox.restrict({ ...network, allowedHosts }, signal);
    const script = installPrograms(programs, sandbox.withoutNpm, sandbox.inPath);
    const { exitCode, outputTail } = await sandbox.run(script);
    if (exitCode !== 0) throw new SandboxError('failed', outputTail.trim());
  } finally {
    // Scripts of the session may follow.
    await sandbox.restrict(network, AbortSignal.timeout(NARROW_LIMIT_MS));
    onSharedWork?.(null);
  }
}
