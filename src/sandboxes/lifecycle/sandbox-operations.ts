import { randomUUID } from 'node:crypto';
import { conflict, notFound } from '../../common/errors.js';
import type { Sql } from '../../database/sql.js';
import type { SandboxDriver } from '../driver/sandbox-driver.js';
import type { SandboxPlace } from '../sandbox-host.js';
import type { SandboxState } from './sandbox-states.js';
import { SandboxSweep } from './sandbox-sweep.js';
import {
  type ListedSandbox,
  type OnRecord,
  type Owner,
  SandboxesRepository,
} from './sandboxes.repository.js';

export type { ListedSandbox };

/** How long the service's own reapers leave alone a sandbox that an operator's command has taken. */
const TAKEN_SECONDS = 60;
/** The same for a probe. */
const PROBE_SECONDS = 120;
const LIST_LIMIT_MS = 60_000;

/** Why a sandbox is to be destroyed. */
export type Reason = 'given up' | 'idle' | 'without a session' | 'gone, on record';

export interface Found extends OnRecord {
  reason: Reason;
}

export interface Reaped extends Found {
  result: string;
}

/** The configured driver, and the place of its sandboxes. */
export interface SandboxAccess {
  driver: SandboxDriver;
  place: SandboxPlace;
}

/** The newest sandboxes on record, of all places. @param state only those in this state */
export async function listSandboxes(
  sql: Sql,
  state: SandboxState | undefined,
  limit: number,
): Promise<ListedSandbox[]> {
  return new SandboxesRepository(sql).list(state, limit);
}

export const NO_SANDBOX = 'Sandbox not found';
export const SANDBOX_IN_USE =
  'Only idle sandboxes can be destroyed. Terminate the session that uses this one instead.';

/**
 * Leaves an idle sandbox to the reaper of its host. Its session cannot be continued.
 * @throws DomainError when there is no such sandbox, or it is not idle.
 */
export async function giveUpIdleSandbox(sql: Sql, sandboxId: string): Promise<void> {
  const repository = new SandboxesRepository(sql);
  if ((await repository.markTheseIdle([sandboxId])) > 0) return;
  const known = await repository.known([sandboxId]);
  throw known.size > 0 ? conflict(SANDBOX_IN_USE) : notFound(NO_SANDBOX);
}

/** Does the work of a reaper when an operator requests it. */
export class SandboxOperations {
  private readonly owner: Owner = { name: randomUUID(), seconds: TAKEN_SECONDS };
  private readonly repository: SandboxesRepository;
  private readonly sweep: SandboxSweep;

  constructor(
    sql: Sql,
    private readonly access: SandboxAccess,
  ) {
    this.repository = new SandboxesRepository(sql);
    this.sweep = new SandboxSweep(this.repository, access.driver, access.place);
  }

  /** The sandboxes that no session needs any more. */
  async find(idleSeconds: number): Promise<Found[]> {
    const { place } = this.access;
    const differences = await this.sweep.compare(AbortSignal.timeout(LIST_LIMIT_MS));
    const found = new Map<string, Found>();
    const note = (sandboxes: readonly OnRecord[], reason: Reason) => {
      for (const each of sandboxes) {
        if (!found.has(each.sandboxId)) found.set(each.sandboxId, { ...each, reason });
      }
    };
    note(await this.repository.toDelete(place), 'given up');
    note(
      differences.withoutRecord.map((id) => ({ sandboxId: id, sessionId: id })),
      'without a session',
    );
    note(differences.withoutSandbox, 'gone, on record');
    note(await this.repository.idle(place, idleSeconds), 'idle');
    return [...found.values()];
  }

  /** Destroys sandboxes. Skips those that a session uses again by now, or that the service is already destroying. */
  async destroy(found: readonly Found[], describe: (error: unknown) => string): Promise<Reaped[]> {
    const { place } = this.access;
    const idle = found.filter(({ reason }) => reason === 'idle' || reason === 'gone, on record');
    await this.repository.markTheseIdle(idle.map(({ sandboxId }) => sandboxId));
    const reaped = new Map<string, string>();
    const destroy = async (each: OnRecord): Promise<void> => {
      const result = await this.sweep.destroy(each).then(
        () => 'destroyed',
        (error: unknown) => `failed: ${describe(error)}`,
      );
      reaped.set(each.sandboxId, result);
    };
    for (const each of found) if (each.reason === 'without a session') await destroy(each);
    try {
      for (;;) {
        const taken = await this.repository.take(place, this.owner);
        const fresh = taken.filter(({ sandboxId }) => !reaped.has(sandboxId));
        if (fresh.length === 0) break;
        for (const each of fresh) await destroy(each);
      }
    } finally {
      await this.repository.release(this.owner.name);
    }
    return found.map((each) => ({ ...each, result: reaped.get(each.sandboxId) ?? 'left alone' }));
  }
}

/**
 * Records a short-lived sandbox, so that a reaper destroys it if this process dies.
 * @returns removes the record
 */
export async function recordProbe(
  sql: Sql,
  sandboxId: string,
  place: SandboxPlace,
): Promise<() => Promise<void>> {
  const repository = new SandboxesRepository(sql);
  const owner = { name: randomUUID(), seconds: PROBE_SECONDS };
  await repository.record(sandboxId, 'deleting', place, owner);
  return () => repository.forget(sandboxId);
}
