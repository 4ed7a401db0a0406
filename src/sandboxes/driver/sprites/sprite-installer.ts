import { SandboxError } from '../../../supervisor/sandbox-error.js';
import {
  installScript,
  NEEDS_FILES,
  NEEDS_NODE,
  oldVersions,
  OTHER_PROCESSOR,
  REMOVE_VERSION,
} from './install-script.js';
import type { SpritesOptions } from './options.js';
import type { SpriteRequests } from './sprite-requests.js';
import { unlessStatus } from './sprites-errors.js';
import { AS_ROOT, namesOf, type SpriteRuntime } from './sprite-runtime.js';

const MOST_KNOWN = 10_000;
const STAGING = '/tmp';
/** The names of processors as the kernel says them. */
const MACHINES: Readonly<Record<string, string>> = { x64: 'x86_64', arm64: 'aarch64' };

/** Installs the supervisor in sprites and starts it there. */
export class SpriteInstaller {
  /** The sandboxes that are known to have this version of the supervisor. */
  private readonly installed = new Set<string>();

  constructor(
    private readonly requests: SpriteRequests,
    private readonly runtime: SpriteRuntime,
    private readonly gateway: SpritesOptions['gateway'],
  ) {}

  /** Installs it unless this process knows that it is there: the sprite may be from another version of the service. */
  async ensure(sandboxId: string, signal: AbortSignal): Promise<void> {
    if (!this.installed.has(sandboxId)) await this.install(sandboxId, signal);
  }

  /** The supervisor may have to be installed again. */
  forget(sandboxId: string): void {
    this.installed.delete(sandboxId);
  }

  /** Sees to it that this version of the supervisor runs in the sprite. */
  async install(sandboxId: string, signal: AbortSignal): Promise<void> {
    let { code, old } = await this.runInstallation(sandboxId, '', signal);
    for (const withNode of [false, true]) {
      if (code !== (withNode ? NEEDS_NODE : NEEDS_FILES)) continue;
      const staged = await this.upload(sandboxId, await this.runtime.archive(withNode), signal);
      ({ code, old } = await this.runInstallation(sandboxId, staged, signal));
    }
    if (code !== 0) throw new SandboxError('failed', `the sprite could not be prepared (${code})`);
    await this.startService(sandboxId, signal);
    // Only takes room, and is tried again the next time.
    for (const digest of old) {
      await this.removeVersion(sandboxId, digest, signal).catch(() => undefined);
    }
    if (this.installed.size >= MOST_KNOWN) this.installed.clear();
    this.installed.add(sandboxId);
  }

  private async runInstallation(
    sandboxId: string,
    staged: string,
    signal: AbortSignal,
  ): Promise<{ code: number; old: string[] }> {
    const { runtime = '', loader = '' } = this.runtime.installation;
    const remote = this.gateway?.remote;
    const link = remote && { address: remote.linkOf(sandboxId), sandboxId };
    const machine = MACHINES[process.arch] ?? process.arch;
    const script = installScript(machine, this.gateway && { link });
    const path = 'exec "$@" "$PATH"';
    const command = ['/bin/sh', '-c', path, 'sh', ...AS_ROOT] as const;
    const { exitCode, output } = await this.requests.run(
      sandboxId,
      [...command, '/bin/sh', '-s', runtime, loader, staged],
      Buffer.from(`PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n${script}`),
      signal,
    );
    if (exitCode === OTHER_PROCESSOR) {
      throw new SandboxError(
        'failed',
        `the sprite's processor differs from the service's: ${output}`,
      );
    }
    const expected = [0, NEEDS_FILES, NEEDS_NODE].includes(exitCode);
    if (!expected) throw new SandboxError('failed', `the sprite could not be prepared: ${output}`);
    return { code: exitCode, old: oldVersions(output) };
  }

  /** Removes what another version of the service has left in the sprite, unless it still runs. */
  private async removeVersion(
    sandboxId: string,
    digest: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { folder, service, socket } = namesOf(digest);
    const isFree = async (what: 'check' | 'remove'): Promise<boolean> => {
      const args = [REMOVE_VERSION, 'sh', folder, what, socket] as const;
      const command = [...AS_ROOT, '/bin/sh', '-c', ...args] as const;
      return (await this.requests.run(sandboxId, command, undefined, signal)).exitCode === 0;
    };
    if (!(await isFree('check'))) return;
    const path = ['services', service];
    const { api, names } = this.requests;
    await api
      .request({ method: 'DELETE', path: [names.of(sandboxId), ...path], signal })
      .catch(unlessStatus([404]));
    // Its service could start something until now.
    await isFree('remove');
  }

  private async upload(sandboxId: string, bytes: Buffer, signal: AbortSignal): Promise<string> {
    const path = `${STAGING}/${this.runtime.service}-${crypto.randomUUID()}.tar.gz`;
    const query = [
      ['path', path],
      ['workingDir', '/'],
      ['mkdirParents', 'true'],
      ['mode', '0600'],
    ] as const;
    await this.requests.send(sandboxId, {
      method: 'PUT',
      path: ['fs', 'write'],
      query,
      bytes,
      signal,
    });
    return path;
  }

  /** Defines the service unless it is there: defining it again would start it again. */
  private async startService(sandboxId: string, signal: AbortSignal): Promise<void> {
    const path = ['services', this.runtime.service];
    const { api, names } = this.requests;
    const there = await api
      .request({ method: 'GET', path: [names.of(sandboxId), ...path], signal })
      .then(() => true, unlessStatus<boolean>([404], false));
    if (there) return;
    const [cmd, ...args] = this.runtime.daemon();
    const query = [['duration', '0']] as const;
    const json = { cmd, args, needs: [] };
    await this.requests.send(sandboxId, { method: 'PUT', path, query, json, signal });
  }
}
