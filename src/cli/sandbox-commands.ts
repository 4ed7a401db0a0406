import { randomUUID } from 'node:crypto';
import type { Command } from 'commander';
import { SandboxSweep } from '../runner/sandbox-sweep.js';
import { type OnRecord, SandboxesRepository } from '../runner/sandboxes.repository.js';
import { durationArgument, firstLine, group, withExamples } from './command-line.js';
import { ExitCode } from './exit-codes.js';
import { changes, type Operator, type OperatorDatabase } from './operator-database.js';
import { table } from './output.js';
import { type SandboxAccess, withSandboxes } from './sandbox-access.js';

/** For how long the service's own reapers leave alone what this one has taken. */
const TAKEN_SECONDS = 60;
const LIST_LIMIT_MS = 60_000;
const REMARK = `The service does so by itself, every two seconds and once a minute; this is for a host whose service does
not run, for seeing what it would do, and for making room. Run it where the sandboxes are, as the user
and with the configuration of the service. Sandboxes of sessions that run are never touched.`;

interface ReapOptions {
  dryRun?: boolean;
  idle?: number;
}

/** Why a sandbox is to go. */
type Reason = 'given up' | 'idle' | 'without a session' | 'gone, on record';

interface Found extends OnRecord {
  reason: Reason;
}

interface Reaped extends Found {
  result: string;
}

/** `sandboxes reap`. */
export function addSandboxCommands(program: Command, operator: Operator): void {
  const sandboxes = group(program, 'sandboxes', 'sandboxes of the configured driver on this host');

  changes(
    withExamples(
      sandboxes
        .command('reap')
        .description('destroy the sandboxes that no session needs any more')
        .option('--dry-run', 'only say which')
        .option(
          '--idle <duration>',
          'also those of completed sessions that have not been prompted for so long, instead of SANDBOX_IDLE_TTL; such a session cannot be continued',
          durationArgument,
        ),
      ['sandboxes reap --dry-run', 'sandboxes reap --idle 1h', 'sandboxes reap --json'],
      REMARK,
    ),
    operator,
    async (database, { dryRun = false, idle }: ReapOptions) =>
      withSandboxes(database.config, database.sql, async (access) => {
        const seconds = idle ?? database.config.sandbox.idleTtlSeconds;
        const reaper = new Reaper(database, access);
        const found = await reaper.find(seconds);
        const reaped = dryRun
          ? found.map((each) => ({ ...each, result: 'would be destroyed' }))
          : await reaper.destroy(found);
        const failed = reaped.filter(({ result }) => result.startsWith('failed')).length;
        return {
          object: dryRun ? 'dry run' : `${reaped.length - failed} sandboxes`,
          json: {
            dry_run: dryRun,
            sandboxes: reaped.map(({ sandboxId, reason, result }) => ({
              id: sandboxId,
              reason,
              result,
            })),
          },
          text:
            reaped.length === 0
              ? 'Nothing to reap'
              : table(
                  ['SANDBOX', 'WHY', 'RESULT'],
                  reaped.map(({ sandboxId, reason, result }) => [sandboxId, reason, result]),
                ),
          exitCode: failed === 0 ? ExitCode.done : ExitCode.failed,
        };
      }),
  );
}

class Reaper {
  private readonly name = randomUUID();
  private readonly repository: SandboxesRepository;
  private readonly sweep: SandboxSweep;

  constructor(
    { sql }: OperatorDatabase,
    private readonly access: SandboxAccess,
  ) {
    this.repository = new SandboxesRepository(sql);
    this.sweep = new SandboxSweep(this.repository, access.driver, access.place);
  }

  async find(idleSeconds: number): Promise<Found[]> {
    const { place } = this.access;
    const strays = await this.sweep.compare(AbortSignal.timeout(LIST_LIMIT_MS));
    const found = new Map<string, Found>();
    const note = (sandboxes: readonly OnRecord[], reason: Reason) => {
      for (const each of sandboxes) {
        if (!found.has(each.sandboxId)) found.set(each.sandboxId, { ...each, reason });
      }
    };
    note(await this.repository.doomed(place), 'given up');
    note(
      strays.withoutRecord.map((id) => ({ sandboxId: id, sessionId: id })),
      'without a session',
    );
    note(strays.withoutSandbox, 'gone, on record');
    note(await this.repository.idle(place, idleSeconds), 'idle');
    return [...found.values()];
  }

  /** What a session has taken up again meanwhile stays; what the service destroys at this moment is left to it. */
  async destroy(found: readonly Found[]): Promise<Reaped[]> {
    const { place } = this.access;
    const resting = found.filter(({ reason }) => reason === 'idle' || reason === 'gone, on record');
    await this.repository.doomResting(resting.map(({ sandboxId }) => sandboxId));
    const reaped = new Map<string, string>();
    const destroy = async (each: OnRecord): Promise<void> => {
      reaped.set(each.sandboxId, await this.destroyOne(each));
    };
    for (const each of found) if (each.reason === 'without a session') await destroy(each);
    try {
      for (;;) {
        const taken = await this.repository.takeDoomed(place, this.name, TAKEN_SECONDS);
        const fresh = taken.filter(({ sandboxId }) => !reaped.has(sandboxId));
        if (fresh.length === 0) break;
        for (const each of fresh) await destroy(each);
      }
    } finally {
      await this.repository.release(this.name);
    }
    return found.map((each) => ({ ...each, result: reaped.get(each.sandboxId) ?? 'left alone' }));
  }

  private async destroyOne(sandbox: OnRecord): Promise<string> {
    try {
      await this.sweep.destroy(sandbox);
      return 'destroyed';
    } catch (error) {
      return `failed: ${firstLine(error)}`;
    }
  }
}
