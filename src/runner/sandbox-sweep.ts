import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import type { OnRecord, SandboxesRepository, SandboxPlace } from './sandboxes.repository.js';

const DESTROY_LIMIT_MS = 60_000;

/** What does not belong together on a host. */
export interface Strays {
  /** Sandboxes that nobody has on record. */
  withoutRecord: string[];
  /** Records of sandboxes at rest that are not there. */
  withoutSandbox: OnRecord[];
}

/** Compares the records of a host's sandboxes with what there is, and destroys what was given up. */
export class SandboxSweep {
  constructor(
    private readonly repository: SandboxesRepository,
    private readonly driver: Pick<SandboxDriver, 'list' | 'destroy'>,
    private readonly place: SandboxPlace,
  ) {}

  /** Finds what is on record and not there, and what is there and not on record. */
  async compare(signal: AbortSignal): Promise<Strays> {
    // In this order: a record is written before its sandbox is made and deleted after it is gone, so that what is on
    // record first and not there then is gone, and what is there first and not on record then has none.
    const resting = await this.repository.resting(this.place);
    const there = await this.driver.list({ signal });
    const known = await this.repository.known(there);
    const found = new Set(there);
    return {
      withoutRecord: there.filter((id) => !known.has(id)),
      withoutSandbox: resting.filter(({ sandboxId }) => !found.has(sandboxId)),
    };
  }

  /**
   * Destroys a sandbox and forgets its record.
   * @param whenIdle resolves when this process has nothing to do with the session any more.
   */
  async destroy(
    { sandboxId, sessionId }: OnRecord,
    whenIdle: (sessionId: string) => Promise<void> = async () => undefined,
  ): Promise<void> {
    const signal = AbortSignal.timeout(DESTROY_LIMIT_MS);
    // The first one ends what runs; the second removes what a runner that was just stopping may have made since.
    await this.driver.destroy({ sandboxId, signal });
    await whenIdle(sessionId);
    await this.driver.destroy({ sandboxId, signal });
    await this.repository.forget(sandboxId);
  }
}
