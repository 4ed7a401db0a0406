import { Injectable } from '@nestjs/common';
import { conflict, DomainError, notFound, unprocessable } from '../../common/errors.js';
import { SessionsService } from '../../sessions/sessions.service.js';
import { FilesService } from '../files.service.js';
import { listScript, MAX_PATCH_BYTES, patchScript } from './changes-script.js';
import { parseChanges } from './parse-changes.js';
import { commitOf, exactly, MAX_LIST_BYTES, readAll, withFirstLine } from './script-output.js';
import { type RepositoryChanges, TurnChanges, type TurnKey } from './turn-changes.repository.js';

const CALL_LIMIT_MS = 120_000;

export const NO_SUCH_REPOSITORY = 'No such repository';
export const WHICH_REPOSITORY =
  'mount_path is required, because the session has several repositories';
export const NOT_KEPT = 'No changes are kept of this turn';
export const NOT_COMPARABLE =
  'The repository cannot be compared with its base: it or the commit is not there any more, or it is too large';

/** A patch that is being read. */
export interface Patch {
  /** The length of the content. */
  bytes: number;
  /** Whether the content is only the beginning. */
  isCut: boolean;
  content: AsyncGenerator<Buffer, void, undefined>;
  /** To be called if the content is not read. */
  close: () => Promise<void>;
}

/** Which session, and the end of which turn; without a turn, how it is now. */
export interface ChangesRef {
  userId: string;
  sessionId: string;
  turn: number | undefined;
}

/**
 * What a session has changed in its repositories: computed in its sandbox when it is requested, or as it was kept at the
 * end of a turn.
 */
@Injectable()
export class ChangesService {
  constructor(
    private readonly sessions: SessionsService,
    private readonly files: FilesService,
    private readonly kept: TurnChanges,
  ) {}

  async list({ userId, sessionId, turn }: ChangesRef): Promise<RepositoryChanges[]> {
    const signal = AbortSignal.timeout(CALL_LIMIT_MS);
    const repositories = await this.sessions.repositories(userId, sessionId);
    if (turn !== undefined) {
      const kept = await this.kept.findUnscoped({ sessionId, turnNumber: turn });
      if (kept.length === 0) throw notFound(NOT_KEPT);
      return kept;
    }
    const all: RepositoryChanges[] = [];
    for (const { mountPath, base } of repositories) {
      const ref = { userId, sessionId, path: mountPath };
      const output = withFirstLine(this.files.script(ref, listScript(base), signal));
      try {
        const { line, rest } = await output;
        const files = parseChanges(await readAll(rest, MAX_LIST_BYTES));
        all.push({ mountPath, base, head: commitOf(line), files });
      } catch (error) {
        throw asNotComparable(error);
      }
    }
    return all;
  }

  /** @param mountPath may be empty if there is one repository only */
  async patch(ref: ChangesRef, mountPath: string, signal: AbortSignal): Promise<Patch> {
    const { userId, sessionId, turn } = ref;
    const repositories = await this.sessions.repositories(userId, sessionId);
    if (mountPath === '' && repositories.length > 1) throw unprocessable(WHICH_REPOSITORY);
    const found = repositories.find((one) => mountPath === '' || one.mountPath === mountPath);
    if (found === undefined) throw notFound(NO_SUCH_REPOSITORY);
    if (turn !== undefined) {
      return this.keptPatch({ sessionId, turnNumber: turn }, found.mountPath);
    }
    const place = { userId, sessionId, path: found.mountPath };
    try {
      const output = this.files.script(place, patchScript(found.base), signal);
      const { line, rest } = await withFirstLine(output);
      const [, whole = '', length = ''] = /^(\d{1,15}) (\d{1,15})$/.exec(line) ?? [];
      if (length !== '' && Number(length) <= Math.min(Number(whole), MAX_PATCH_BYTES)) {
        return patchOf(Number(whole), Number(length), rest, output);
      }
      await output.return();
      throw new Error('the length of the patch cannot be read');
    } catch (error) {
      throw asNotComparable(error);
    }
  }

  private async keptPatch(key: TurnKey, mountPath: string): Promise<Patch> {
    const kept = await this.kept.findUnscoped(key);
    const changes = kept.find((one) => one.mountPath === mountPath);
    if (changes === undefined) throw notFound(NOT_KEPT);
    const { patchBytes, keptBytes } = changes;
    const content = this.kept.patchUnscoped(key, mountPath);
    return patchOf(patchBytes, keptBytes, content, content);
  }
}

/** @param source what is to be ended when nobody reads the content */
function patchOf(
  whole: number,
  bytes: number,
  content: AsyncIterable<Buffer>,
  source: AsyncGenerator<Buffer, void, undefined>,
): Patch {
  // A generator that has not begun ends without ending what it would have read.
  const close = async (): Promise<void> => void (await source.return());
  return { bytes, isCut: bytes < whole, content: exactly(content, bytes), close };
}

/** The script failed, or printed something else: the repository is not as it should be. */
function asNotComparable(error: unknown): unknown {
  if (error instanceof DomainError && error.kind !== 'upstream' && error.kind !== 'not_found') {
    return error;
  }
  return Object.assign(conflict(NOT_COMPARABLE), { cause: error });
}
