import { Inject, Injectable, Logger } from '@nestjs/common';
import { retry } from '../../common/database-retry.js';
import type { SandboxDriver } from '../../sandboxes/driver/sandbox-driver.js';
import { SANDBOX_DRIVER } from '../../sandboxes/sandbox-host.js';
import { SessionsService } from '../../sessions/sessions.service.js';
import { FileAccess } from '../../supervisor/files/file-access.js';
import { captureScript } from './changes-script.js';
import { parseChanges } from './parse-changes.js';
import { commitOf, MAX_LIST_BYTES, PieceReader, withFirstLine } from './script-output.js';
import { type ClaimKey, TurnChanges } from './turn-changes.repository.js';

/** The patches of all repositories of a turn together; longer ones are cut. Bytes. */
const MAX_KEPT_BYTES = 16 * 1024 * 1024;
/** How long the end of a turn waits for its changes. */
const KEEP_LIMIT_MS = 60_000;
const PIECE_BYTES = 1024 * 1024;

const HEADER = /^([0-9a-f]*) (\d{1,15}) (\d{1,15}) (\d{1,15})$/;

type Claim = ClaimKey & { userId: string };

/** A repository in a sandbox, and how many bytes of its patch are kept. */
interface Place {
  sandboxId: string;
  mountPath: string;
  base: string | null;
  room: number;
}

/** Keeps what a turn has changed in its repositories, so that it can be read after the sandbox is gone. */
@Injectable()
export class ChangesKeeper {
  private readonly logger = new Logger('Changes');

  constructor(
    private readonly sessions: SessionsService,
    private readonly kept: TurnChanges,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  /**
   * Stores the changes of all repositories. Only logs if that is impossible, because the agent may have made its
   * repository unreadable, and its turn ends all the same.
   * @throws the signal's reason
   */
  async keep(claim: Claim, sandboxId: string, signal: AbortSignal): Promise<void> {
    const within = AbortSignal.any([signal, AbortSignal.timeout(KEEP_LIMIT_MS)]);
    const { userId, sessionId } = claim;
    const attempt = async <T>(what: string, work: () => Promise<T>): Promise<T | undefined> => {
      try {
        return await retry(within, work);
      } catch (error) {
        signal.throwIfAborted();
        this.logger.warn(`${what} could not be kept: ${String(error)}`);
        return undefined;
      }
    };
    const find = () => this.sessions.repositories(userId, sessionId);
    let room = MAX_KEPT_BYTES;
    for (const { mountPath, base } of (await attempt('The changes of the turn', find)) ?? []) {
      const place = { sandboxId, mountPath, base, room };
      const capture = () => this.capture(claim, place, within);
      room -= (await attempt(`The changes of ${mountPath}`, capture)) ?? 0;
    }
  }

  /** @returns how many bytes of the patch were stored */
  private async capture(claim: ClaimKey, place: Place, signal: AbortSignal): Promise<number> {
    const { sandboxId, mountPath, base, room } = place;
    const files = new FileAccess((call) => this.driver.files({ sandboxId, ...call }));
    const output = files.script({
      path: `${this.driver.layout(sandboxId).workspace}/${mountPath}`,
      script: captureScript(base, room),
      limitMs: KEEP_LIMIT_MS,
      signal,
    });
    try {
      const { line, rest } = await withFirstLine(output);
      const [, head = '', list = '', patch = '', length = ''] = HEADER.exec(line) ?? [];
      if (length === '') throw new Error('the lengths cannot be read');
      if (Number(list) > MAX_LIST_BYTES) throw new Error('the list is too long');
      const reader = new PieceReader(rest);
      const changed = parseChanges(await reader.take(Number(list)));
      const patchBytes = Number(patch);
      const kept = Number(length);
      if (kept > Math.min(patchBytes, room)) throw new Error('the patch is too long');
      const changes = { mountPath, base, head: commitOf(head), files: changed, patchBytes };
      await this.kept.keep(claim, changes, piecesOf(reader, kept));
      return kept;
    } finally {
      await output.return();
    }
  }
}

async function* piecesOf(
  reader: PieceReader,
  length: number,
): AsyncGenerator<Buffer, void, undefined> {
  for (let left = length; left > 0;) {
    const bytes = Math.min(left, PIECE_BYTES);
    yield await reader.take(bytes);
    left -= bytes;
  }
  await reader.end();
}
