import { abandonable } from '../../common/async.js';
import type { SandboxDriver } from '../driver/sandbox-driver.js';
import { SandboxError } from '../../supervisor/sandbox-error.js';
import type { SandboxPlace } from '../sandbox-host.js';
import type { OnRecord, SandboxesRepository } from './sandboxes.repository.js';

const DESTROY_LIMIT_MS = 60_000;
const busy = (): Error => new SandboxError('aborted', 'the work in it did not end in time');
/** The reaper waits this long for an engine that does not answer, and tries again later. */
const COMPARE_LIMIT_MS = 60_000;

/** How the records of a host differ from its sandboxes. */
export interface Differences {
  /** Sandboxes without a record. */
  withoutRecord: string[];
  /** Records of idle sandboxes that are not there. */
  withoutSandbox: OnRecord[];
}

/** Compares the records of a host with its sandboxes, and destroys those that are marked for deletion. */
export class SandboxSweep {
  constructor(
    private readonly repository: SandboxesRepository,
    private readonly driver: Pick<SandboxDriver, 'list' | 'exists' | 'destroy'>,
    private readonly place: SandboxPlace,
  ) {}

  async compare(stop: AbortSignal): Promise<Differences> {
    const signal = AbortSignal.any([stop, AbortSignal.timeout(COMPARE_LIMIT_MS)]);
    // The order of these reads matters, because a record is written before its sandbox is made and removed after it is
    // destroyed: a sandbox that has a record but is missing in a later listing is gone, and one that is in a listing
    // but missing in later records is an orphan.
    const idle = await this.repository.idle(this.place);
    const there = await this.driver.list({ signal });
    const known = await this.repository.known(there);
    const found = new Set(there);
    const missing = idle.filter(({ sandboxId }) => !found.has(sandboxId));
    // A sandbox may be missing in a list for other reasons, so its absence has to be proven.
    const proofs = await Promise.all(
      missing.map(({ sandboxId }) => this.driver.exists({ sandboxId, signal })),
    );
    return {
      withoutRecord: there.filter((id) => !known.has(id)),
      withoutSandbox: missing.filter((_, index) => proofs[index] === 'no'),
    };
  }

  /**
   * Destroys a sandbox that is marked for deletion, and removes its record.
   * @param whenUnused resolves when this process no longer uses the session's sandbox.
   * @throws if that, or the driver, takes too long. Call it again later.
   */
  async destroy(
    { sandboxId, sessionId }: OnRecord,
    whenUnused: (sessionId: string) => Promise<void> = async () => undefined,
  ): Promise<void> {
    const signal = AbortSignal.timeout(DESTROY_LIMIT_MS);
    // The first call ends what runs. The second removes what a runner that was just stopping may have created since.
    await this.driver.destroy({ sandboxId, signal });
    await abandonable(whenUnused(sessionId), signal, busy);
    await this.driver.destroy({ sandboxId, signal });
    await this.repository.forget(sandboxId);
  }
}
