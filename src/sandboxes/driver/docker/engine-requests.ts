import type { SandboxRef } from '../sandbox-driver.js';
import { requireId, requireNotAborted } from '../../../supervisor/sandbox-error.js';
import type { RunningSandbox } from './docker-sandboxes.js';
import { inTime, translate } from './engine.js';
import { connectInstallation, type Installation } from './installation.js';
import type { DockerSandboxOptions } from './options.js';

/** The driver's requests to its installation. They fail with a SandboxError. */
export class EngineRequests {
  private connected: Promise<Installation> | undefined;

  constructor(private readonly options: DockerSandboxOptions) {}

  /** The installation, which is connected when it is first needed. */
  installation(): Promise<Installation> {
    this.connected ??= connectInstallation(this.options).catch((error: unknown) => {
      this.connected = undefined;
      throw error;
    });
    return this.connected;
  }

  /** Runs `work` with the installation. */
  async ask<T>(signal: AbortSignal, work: (installation: Installation) => Promise<T>): Promise<T> {
    requireNotAborted(signal);
    try {
      return await work(await this.installation());
    } catch (error) {
      throw translate(error, this.options.engine.host);
    }
  }

  /**
   * Like {@link ask}, for requests that are harmless if they are carried out late, so that it does not wait for a hung
   * engine.
   */
  askInTime<T>(signal: AbortSignal, work: (installation: Installation) => Promise<T>): Promise<T> {
    const { host } = this.options.engine;
    return this.ask(signal, (installation) => inTime(work(installation), { host, signal }));
  }

  /** Runs `work` in an existing sandbox with its containers running. */
  async inside<T>(
    { sandboxId, signal }: SandboxRef,
    work: (sandbox: RunningSandbox, installation: Installation) => Promise<T>,
  ): Promise<T> {
    requireId(sandboxId);
    return this.ask(signal, async (installation) =>
      work(await installation.sandboxes.running(sandboxId), installation),
    );
  }

  async close(): Promise<void> {
    const installation = await this.connected?.catch(() => undefined);
    await installation?.gateway.close();
    await installation?.remote.close();
  }
}
