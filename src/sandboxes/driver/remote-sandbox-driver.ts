import type { FileCall } from '../../supervisor/files/file-call.js';
import type { LaunchRequest } from '../../supervisor/launch-request.js';
import { packFiles } from '../../supervisor/packed-files.js';
import type { Item } from '../../supervisor/protocol/frames.js';
import { BROKER } from '../../supervisor/relay/listener-plan.js';
import { requireId, requireNotAborted, SandboxError } from '../../supervisor/sandbox-error.js';
import { HOME, WORKSPACE } from '../../supervisor/sandbox-options.js';
import type { RemoteLaunches } from './remote-launches.js';
import type {
  CreateSandboxOptions,
  Existence,
  GatewayAccess,
  LaunchOptions,
  LaunchRef,
  LimitReport,
  NetworkPolicy,
  ProvideProgramsOptions,
  RunScriptOptions,
  SandboxDriver,
  SandboxFile,
  SandboxLayout,
  SandboxRef,
  ScriptResult,
  SpoolEvent,
} from './sandbox-driver.js';

/** What a driver is made of that needs the installation's id, which is only known once the database answers. */
export interface RemoteParts {
  remote: RemoteLaunches;
}

/**
 * A driver whose sandboxes each have a supervisor that is reached over a byte stream. What the supervisor does is the
 * same for all of these drivers and is here: launches and files. A driver adds how sandboxes are made and reached.
 */
export abstract class RemoteSandboxDriver<Parts extends RemoteParts> implements SandboxDriver {
  abstract readonly name: string;
  private made: Promise<Parts> | undefined;

  abstract preflight(options: { signal: AbortSignal }): Promise<void>;
  abstract limits(options: { signal: AbortSignal }): Promise<LimitReport>;
  abstract create(options: CreateSandboxOptions): Promise<void>;
  abstract packageHosts(options: SandboxRef): Promise<readonly string[]>;
  abstract restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void>;
  abstract runScript(options: RunScriptOptions): Promise<ScriptResult>;
  abstract providePrograms(options: ProvideProgramsOptions): Promise<void>;
  abstract exists(options: SandboxRef): Promise<Existence>;
  abstract destroy(options: SandboxRef): Promise<void>;
  abstract list(options: { signal: AbortSignal }): Promise<string[]>;

  /** Makes the parts when they are first needed; after a failure, again the next time. */
  protected abstract make(): Promise<Parts>;
  /** The request to the supervisor for a turn. */
  protected abstract launchRequest(
    options: LaunchOptions,
    parts: Parts,
  ): LaunchRequest | Promise<LaunchRequest>;
  /** Converts what a request to the upstream threw to an error for the caller. */
  protected explain(error: unknown): unknown {
    return error;
  }
  /** Lets go of the parts, apart from the connections to supervisors. */
  protected async release(_parts: Parts): Promise<void> {}

  layout(_sandboxId: string): SandboxLayout {
    return { home: HOME, workspace: WORKSPACE };
  }

  async gateway(): Promise<GatewayAccess> {
    return { url: BROKER.url, identifies: true };
  }

  async writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void> {
    const { signal } = options;
    const sandboxId = requireId(options.sandboxId);
    const files = packFiles(options.files, [HOME, WORKSPACE]);
    await this.ask(signal, ({ remote }) =>
      remote.supervisor(sandboxId).write({ files, home: HOME, signal }),
    );
  }

  async *files(options: SandboxRef & FileCall): AsyncGenerator<Item, void, undefined> {
    const sandboxId = requireId(options.sandboxId);
    requireNotAborted(options.signal);
    try {
      const { remote } = await this.parts();
      yield* remote.supervisor(sandboxId).files({ ...options, roots: this.layout(sandboxId) });
    } catch (error) {
      throw this.explain(error);
    }
  }

  async launch(options: LaunchOptions): Promise<void> {
    const { signal } = options;
    const sandboxId = requireId(options.sandboxId);
    const launchId = requireId(options.launchId);
    await this.ask(signal, async (parts) => {
      const request = await this.launchRequest(options, parts);
      await parts.remote.supervisor(sandboxId).launch({ launchId, request, signal });
    });
  }

  async *follow(
    options: LaunchRef & { offset: number },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    requireId(options.launchId);
    const sandboxId = requireId(options.sandboxId);
    try {
      const { remote } = await this.parts();
      yield* remote.supervisor(sandboxId).follow(options);
    } catch (error) {
      throw this.explain(error);
    }
  }

  async kill(options: LaunchRef): Promise<void> {
    requireId(options.launchId);
    requireId(options.sandboxId);
    await this.ask(options.signal, ({ remote }) => remote.kill(options)).catch(ignoreGone);
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    requireId(options.launchId);
    const sandboxId = requireId(options.sandboxId);
    await this.ask(options.signal, ({ remote }) =>
      remote.supervisor(sandboxId).discard(options),
    ).catch(ignoreGone);
  }

  async close(): Promise<void> {
    const parts = await this.made?.catch(() => undefined);
    if (parts === undefined) return;
    await parts.remote.close();
    await this.release(parts);
  }

  /** Runs `work` with the parts. @throws SandboxError */
  protected async ask<T>(signal: AbortSignal, work: (parts: Parts) => Promise<T>): Promise<T> {
    requireNotAborted(signal);
    try {
      return await work(await this.parts());
    } catch (error) {
      throw this.explain(error);
    }
  }

  protected parts(): Promise<Parts> {
    this.made ??= this.make().catch((error: unknown) => {
      this.made = undefined;
      throw error;
    });
    return this.made;
  }
}

/** For `catch`: if a sandbox does not exist, nothing runs in it and nothing is left to remove. */
export function ignoreGone(error: unknown): void {
  if (!(error instanceof SandboxError && error.kind === 'gone')) throw error;
}
