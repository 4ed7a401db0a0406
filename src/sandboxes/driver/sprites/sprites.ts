import type { Duplex } from 'node:stream';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { Existence, NetworkPolicy, OnSharedWork } from '../sandbox-driver.js';
import { openExec } from './exec-stream.js';
import { networkRules } from './network-rules.js';
import type { SpriteInstaller } from './sprite-installer.js';
import type { SpriteRequests } from './sprite-requests.js';
import type { SpriteRuntime } from './sprite-runtime.js';
import { reasonToWait, unlessStatus } from './sprites-errors.js';

/** Creating waits for room until its caller gives up. */
const FOREVER_MS = Number.MAX_SAFE_INTEGER;
const CONNECT_LIMIT_MS = 90_000;
const CHECK_PATIENCE_MS = 2_000;
const WRITABLE_ROOT = 'writable-root';
const LIMITED = 'limited-network';

/** An installation's sprites: made, found, prepared, connected to and removed. */
export class Sprites {
  /** @param gateway the host name of the gateway, which every sprite may reach */
  constructor(
    private readonly requests: SpriteRequests,
    private readonly installer: SpriteInstaller,
    private readonly runtime: SpriteRuntime,
    private readonly gateway: string | undefined,
  ) {}

  /**
   * Makes a sprite, or finishes one. Waits while the vendor has no room.
   * @returns whether there was none before, so that nothing of a session has run in it
   */
  async create(options: {
    sandboxId: string;
    writableRoot: boolean;
    network: NetworkPolicy;
    signal: AbortSignal;
    onSharedWork?: OnSharedWork | undefined;
  }): Promise<boolean> {
    const { sandboxId, writableRoot, network, signal, onSharedWork } = options;
    let waited = false;
    const onWait = (error: Error): void => {
      waited = true;
      onSharedWork?.(reasonToWait(error));
    };
    const { api, names } = this.requests;
    const isNew = await api
      .request({
        method: 'POST',
        path: [],
        json: {
          name: names.of(sandboxId),
          labels: [
            'agent-session',
            ...(writableRoot ? [WRITABLE_ROOT] : []),
            ...(network.mode === 'limited' ? [LIMITED] : []),
          ],
          url_settings: { auth: 'sprite' },
          wait_for_capacity: false,
        },
        signal,
        patienceMs: FOREVER_MS,
        onWait,
      })
      .then(() => true, unlessStatus<boolean>([409], false));
    if (waited) onSharedWork?.(null);
    // Before anything runs in it.
    await this.restrict(sandboxId, network, signal);
    await this.installer.install(sandboxId, signal);
    return isNew;
  }

  /** Replaces the network policy. It takes effect at once. */
  async restrict(sandboxId: string, network: NetworkPolicy, signal: AbortSignal): Promise<void> {
    const json = { rules: networkRules(network, this.gateway) };
    const path = ['policy', 'network'];
    await this.requests.send(sandboxId, { method: 'POST', path, json, signal });
  }

  /** How the sprite was created: whether setup scripts run as root, and whether its network was limited then. */
  async madeWith(
    sandboxId: string,
    signal: AbortSignal,
  ): Promise<{ writableRoot: boolean; limited: boolean }> {
    const { api, names } = this.requests;
    const answer = await this.requests.inside(sandboxId, signal, () =>
      api.json({ method: 'GET', path: [names.of(sandboxId)], signal }),
    );
    const labels: unknown[] = Array.isArray(answer['labels']) ? answer['labels'] : [];
    return { writableRoot: labels.includes(WRITABLE_ROOT), limited: labels.includes(LIMITED) };
  }

  /** Whether the interface answers and accepts the token. @throws SandboxError if not */
  async check(signal: AbortSignal): Promise<void> {
    // One sprite says as much as all of them.
    const how = { patienceMs: CHECK_PATIENCE_MS, size: 1 };
    await this.requests.page(this.requests.names.start, undefined, signal, how);
  }

  /** The ids of all sandboxes. @throws SandboxError `unavailable` rather than leaving one out */
  async list(signal: AbortSignal): Promise<string[]> {
    const { names } = this.requests;
    const found: string[] = [];
    let token: string | undefined;
    do {
      const page = await this.requests.page(names.start, token, signal);
      found.push(...page.names);
      if (page.next !== undefined && page.next === token) {
        throw new SandboxError('unavailable', 'the list of sprites does not end');
      }
      token = page.next;
    } while (token !== undefined);
    return [...new Set(found)].flatMap((name) => names.sandboxId(name) ?? []);
  }

  /** Whether there is a sprite for the sandbox. */
  exists(sandboxId: string, signal: AbortSignal): Promise<Existence> {
    return this.requests.exists(sandboxId, signal);
  }

  /** Removes the sprite. */
  async destroy(sandboxId: string, signal: AbortSignal): Promise<void> {
    const { api, names } = this.requests;
    const path = [names.of(sandboxId)];
    this.installer.forget(sandboxId);
    await api.request({ method: 'DELETE', path, signal }).catch(unlessStatus([404]));
    if ((await this.exists(sandboxId, signal)) === 'no') return;
    throw new SandboxError('unavailable', 'it is not certain that the sprite was deleted');
  }

  /** Ends all processes. */
  async restart(sandboxId: string, signal: AbortSignal): Promise<void> {
    await this.requests.send(sandboxId, { method: 'POST', path: ['restart'], signal });
  }

  /** Runs one of our programs as root. @throws SandboxError `failed` with its output */
  async runProgram(
    sandboxId: string,
    program: string,
    args: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    const { exitCode, output } = await this.requests.run(
      sandboxId,
      this.runtime.command(program, ...args),
      undefined,
      signal,
    );
    if (exitCode !== 0) throw new SandboxError('failed', `${program}: ${output}`);
  }

  /** Connects to the supervisor, and wakes the sprite for that. */
  async connect(sandboxId: string): Promise<Duplex> {
    const signal = AbortSignal.timeout(CONNECT_LIMIT_MS);
    await this.installer.ensure(sandboxId, signal);
    const { api, names } = this.requests;
    const name = names.of(sandboxId);
    const stream = await this.requests.inside(sandboxId, signal, () =>
      api.patiently({ signal }, () => openExec(api, name, this.runtime.connection())),
    );
    return stream.once('close', () => {
      // It could not be started, or nobody answered it.
      if (stream.exitCode !== 0 && stream.exitCode !== undefined) this.installer.forget(sandboxId);
    });
  }
}
