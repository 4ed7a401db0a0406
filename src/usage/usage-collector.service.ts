import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { Condition } from '../common/async.js';
import { isolate } from '../common/database-errors.js';
import { GrantSeal, KEY_PREFIXES } from '../gateway/grants.js';
import type { UsageEntry } from '../gateway/usage/usage-entry.js';
import { UsageReader } from '../gateway/usage/reader.js';
import { type Labels, Metrics } from '../metrics/metrics.js';
import type { SandboxDriver } from '../sandboxes/driver/sandbox-driver.js';
import { SANDBOX_DRIVER } from '../sandboxes/sandbox-host.js';
import { GRANT_KEYS, KeyRing } from '../secrets/key-ring.js';
import { Prices } from './prices.js';
import { UsageRepository } from './usage.repository.js';

const RETRY_MS = 250;
/** The longest pause between two attempts to connect. There is no gateway while no agent runs. */
const MAX_RETRY_MS = 5_000;
/** How often the addresses of gateways are looked up, where there may be several. */
const REFRESH_MS = 2_000;
/** The model of requests that the price list does not name, in metrics. */
const OTHER = 'other';
const KINDS = [
  'input_tokens',
  'output_tokens',
  'cache_read_input_tokens',
  'cache_creation_input_tokens',
] as const;

/** Stores what the gateways count, and tells them which turns may send no more requests. */
@Injectable()
export class UsageCollector implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('Usage');
  private readonly seal: GrantSeal;
  private readonly readers = new Set<UsageReader>();
  private readonly listeners = new Set<() => void>();
  private readonly stopping = new AbortController();
  private readonly countRequest: (
    labels: Labels<'provider' | 'model' | 'status'>,
    by: number,
  ) => void;
  private readonly countTokens: (labels: Labels<'provider' | 'model' | 'kind'>, by: number) => void;
  /** The turns that are blocked, for gateways that start later. */
  private readonly blocked = new Map<string, string>();
  private connecting: Promise<void> | undefined;
  private attempting: Promise<void> | undefined;
  /** How often a gateway was connected, where there is one. */
  private opened = 0;
  private readonly woken = new Condition();
  /** The gateways that are connected, where there may be several. */
  private readonly addresses = new Set<string>();

  constructor(
    private readonly repository: UsageRepository,
    private readonly prices: Prices,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
    keys: KeyRing,
    metrics: Metrics,
  ) {
    this.seal = new GrantSeal(keys.derive(GRANT_KEYS));
    this.countRequest = metrics.labelled(
      'model_requests',
      'Requests to model APIs that this process has stored, by the status of the answer',
      ['provider', 'model', 'status'],
    );
    this.countTokens = metrics.labelled(
      'model_tokens',
      'Tokens of the requests to model APIs that this process has stored',
      ['provider', 'model', 'kind'],
    );
    // So that rates are right from the first request on.
    for (const provider of Object.keys(KEY_PREFIXES)) {
      this.countRequest({ provider, model: OTHER, status: '200' }, 0);
      for (const kind of KINDS) this.countTokens({ provider, model: OTHER, kind }, 0);
    }
  }

  onApplicationBootstrap(): void {
    this.connect();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    this.woken.notify();
    for (const reader of this.readers) reader.close();
    await this.connecting;
  }

  /** Calls back when usage was stored. */
  onStored(listener: () => void): void {
    this.listeners.add(listener);
  }

  /** Refuses further model requests of a turn. @param message for the agent program */
  block(turnId: string, message: string): void {
    this.blocked.set(turnId, message);
    for (const reader of this.readers) reader.block(turnId, message);
  }

  /** Forgets a turn that has ended. */
  release(turnId: string): void {
    this.blocked.delete(turnId);
  }

  /** Connects to the gateway at once if there is no connection: it runs when an agent is launched. */
  wake(): void {
    this.woken.notify();
  }

  /** Waits until everything that was counted so far is stored, but no longer than the time limit. */
  async flush(limitMs: number): Promise<void> {
    const limit = new AbortController();
    await Promise.race([
      this.flushAll(),
      delay(limitMs, undefined, { signal: limit.signal }).catch(() => undefined),
    ]);
    limit.abort();
  }

  private async flushAll(): Promise<void> {
    if (this.readers.size === 0 && this.driver.gatewayAddresses === undefined) await this.attempt();
    await Promise.all([...this.readers].map((reader) => reader.flush()));
  }

  private connect(): void {
    this.connecting ??= this.connectOnce().finally(() => (this.connecting = undefined));
  }

  private async connectOnce(): Promise<void> {
    const { driver } = this;
    const { signal } = this.stopping;
    if (driver.connectGateway === undefined) return;
    if (driver.gatewayAddresses !== undefined) return this.connectAll();
    const { opened } = this;
    let wait = RETRY_MS;
    for (;;) {
      const seen = this.woken.seen();
      await this.attempt();
      if (signal.aborted || this.opened !== opened) return;
      await this.woken.wait(seen, wait);
      wait = this.woken.seen() === seen ? Math.min(wait * 2, MAX_RETRY_MS) : RETRY_MS;
    }
  }

  /** Tries to connect once. Attempts at the same time are one. */
  private attempt(): Promise<void> {
    this.attempting ??= this.attemptOnce().finally(() => (this.attempting = undefined));
    return this.attempting;
  }

  private async attemptOnce(): Promise<void> {
    // Without a gateway, there is nothing to read. It starts with the first agent.
    const connection = await this.driver.connectGateway?.().catch(() => undefined);
    if (connection === undefined) return;
    this.opened += 1;
    this.read(new UsageReader(connection, this.seal, this.handlers));
    // Ends the loop of connectOnce if another caller has connected.
    this.woken.notify();
  }

  /** Keeps a connection to each gateway, until this process stops: gateways come and go. */
  private async connectAll(): Promise<void> {
    const { driver } = this;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const addresses = (await driver.gatewayAddresses?.().catch(() => undefined)) ?? [];
      const missing = addresses.filter((address) => !this.addresses.has(address));
      await Promise.all(
        missing.map(async (address) => {
          const connection = await driver.connectGateway?.(address).catch(() => undefined);
          if (connection === undefined) return;
          this.addresses.add(address);
          const reader = new UsageReader(connection, this.seal, this.handlers);
          this.read(reader);
          void reader.done.then(() => this.addresses.delete(address));
        }),
      );
      await delay(REFRESH_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  private read(reader: UsageReader): void {
    if (this.stopping.signal.aborted) return reader.close();
    this.readers.add(reader);
    for (const [turnId, message] of this.blocked) reader.block(turnId, message);
    void reader.done.then(async () => {
      this.readers.delete(reader);
      await delay(RETRY_MS, undefined, { signal: this.stopping.signal }).catch(() => undefined);
      if (this.readers.size === 0 && !this.stopping.signal.aborted) this.connect();
    });
  }

  private readonly handlers = {
    replaced: (): void => this.connect(),
    store: (entries: readonly UsageEntry[]): Promise<void> => this.store(entries),
  };

  /** A request that the database refuses for good is left out, so that it does not hold up the others. */
  private async store(entries: readonly UsageEntry[]): Promise<void> {
    const fresh = await isolate(
      entries,
      (some) => this.repository.record(some, this.prices),
      (entry, error, isAtFault) => {
        if (!isAtFault) throw error;
        this.logger.error(`The usage of request ${entry.id} cannot be stored`, error);
        return [];
      },
    );
    for (const entry of fresh) this.count(entry);
    for (const listener of this.listeners) listener();
  }

  private count(entry: UsageEntry): void {
    const model = this.prices.nameOf(entry.model) ?? OTHER;
    const labels = { provider: entry.api, model };
    this.countRequest({ ...labels, status: String(entry.status) }, 1);
    for (const kind of KINDS) this.countTokens({ ...labels, kind }, entry[kind]);
  }
}
