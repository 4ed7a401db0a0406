import { type BeforeApplicationShutdown, Injectable } from '@nestjs/common';
import { conflict, DomainError, notFound, tooLarge } from '../common/errors.js';
import { SANDBOX_GONE } from '../sessions/session-transitions.js';
import { SessionsService } from '../sessions/sessions.service.js';
import { FileAccess, type FileEntry, type OpenFile } from '../supervisor/files/file-access.js';
import { SandboxError } from '../supervisor/sandbox-error.js';
import { OpenFiles } from './open-files.js';
import { KeptLists, type Page, PagedList } from './paged-list.js';
import { SandboxReach } from './remote/sandbox-reach.service.js';

export const NO_SUCH_FILE = 'No such file';
export const NO_ROOM = 'The file does not fit on the disk of the sandbox';

/** How long an access without content may take. */
const CALL_LIMIT_MS = 60_000;

/** How long a script may take, including what its reader takes. */
const SCRIPT_LIMIT_MS = 120_000;

/** Which files a request is about. */
export interface FileRef {
  userId: string;
  sessionId: string;
  /** Relative to the workspace, or absolute in home or workspace. Empty: the workspace. */
  path: string;
}

/** The files of one session's sandbox. */
interface SessionFiles {
  sandboxId: string;
  files: FileAccess;
  path: string;
  /** The path of an entry of the folder as clients see it. */
  shown: (name: string) => string;
}

/**
 * The files in the sandboxes of sessions. Each access runs in the sandbox as the agent's user, also while a turn runs.
 * Sandboxes on other hosts are reached through a worker there.
 */
@Injectable()
export class FilesService implements BeforeApplicationShutdown {
  private readonly opened = new OpenFiles();
  private readonly lists = new KeptLists();

  constructor(
    private readonly sessions: SessionsService,
    private readonly reach: SandboxReach,
  ) {}

  beforeApplicationShutdown(): void {
    this.lists.closeAll();
  }

  /** The entries of a folder after the given path, each with its path. */
  async list(ref: FileRef, { after, limit }: { after: string; limit: number }): Promise<Page> {
    const { userId, sessionId, path } = ref;
    const key = (last: string): string => JSON.stringify([userId, sessionId, path, last]);
    return this.during(ref, async () => {
      const list = await this.continued(ref, key(after));
      const page = await list?.page(limit).catch(ifSandboxFailed);
      if (list !== undefined && page !== undefined) return this.keepList(list, page, key, userId);
      const begun = await this.beginList(ref, after);
      return this.keepList(begun, await begun.page(limit), key, userId);
    });
  }

  /** Opens a file. Closing it, or the signal, ends the access. @throws DomainError 404 for everything but a file */
  async open(ref: FileRef, signal: AbortSignal): Promise<OpenFile> {
    return this.held(ref, async ({ files, path }) => {
      const file = await files.open({ path, signal });
      if (file.entry.type === 'file') return file;
      await file.close();
      throw notFound(NO_SUCH_FILE);
    });
  }

  /** Replaces or makes a file with its parent folders, as a whole or not at all. */
  async write(
    ref: FileRef,
    { mode, content, signal }: Omit<Parameters<FileAccess['write']>[0], 'path'>,
  ): Promise<FileEntry & { path: string }> {
    return this.during(ref, async () => {
      const { files, path, shown } = await this.find(ref);
      return { ...(await files.write({ path, mode, content, signal })), path: shown('') };
    });
  }

  /** Removes a file, a link, or a folder with everything in it. */
  async remove(ref: FileRef): Promise<void> {
    const signal = AbortSignal.timeout(CALL_LIMIT_MS);
    await this.during(ref, async () => {
      const { files, path } = await this.find(ref);
      await files.remove({ path, signal });
    });
  }

  /** The tree below a folder. @throws DomainError also while it yields */
  async *tree(
    ref: FileRef,
    signal: AbortSignal,
  ): AsyncGenerator<FileEntry | Buffer, void, undefined> {
    const end = this.opened.begin(ref.userId);
    try {
      const { files, path } = await this.find(ref);
      yield* files.tree({ path, signal });
    } catch (error) {
      throw asDomainError(error);
    } finally {
      end();
    }
  }

  /** Runs a script in a folder with the agent's rights; see `FileAccess.script`. */
  async *script(
    ref: FileRef,
    script: string,
    signal: AbortSignal,
  ): AsyncGenerator<Buffer, void, undefined> {
    const end = this.opened.begin(ref.userId);
    try {
      const { files, path } = await this.find(ref);
      yield* files.script({ path, script, limitMs: SCRIPT_LIMIT_MS, signal });
    } catch (error) {
      throw asDomainError(error);
    } finally {
      end();
    }
  }

  /** The list that an earlier page has left, if its sandbox is still that of the session. */
  private async continued({ userId, sessionId }: FileRef, key: string) {
    const list = this.lists.take(key);
    if (list === undefined) return undefined;
    const sandbox = await this.sessions.sandbox(userId, sessionId);
    if (sandbox?.id === list.sandboxId) return list;
    list.close();
    return undefined;
  }

  private async beginList(ref: FileRef, after: string): Promise<PagedList> {
    const { files, path, shown, sandboxId } = await this.find(ref);
    const name = after.slice(after.lastIndexOf('/') + 1);
    const open = (signal: AbortSignal) => files.entries({ path, after: name, signal });
    return new PagedList(sandboxId, shown, open);
  }

  private keepList(list: PagedList, page: Page, key: (last: string) => string, userId: string) {
    const last = page.entries.at(-1)?.path;
    if (page.hasMore && last !== undefined) this.lists.keep(key(last), userId, list);
    else list.close();
    return page;
  }

  private async during<T>({ userId }: FileRef, work: () => Promise<T>): Promise<T> {
    const end = this.opened.begin(userId);
    try {
      return await work();
    } catch (error) {
      throw asDomainError(error);
    } finally {
      end();
    }
  }

  /** As {@link during}; the access lasts until the file is closed. */
  private async held(
    ref: FileRef,
    open: (files: SessionFiles) => Promise<OpenFile>,
  ): Promise<OpenFile> {
    const end = this.opened.begin(ref.userId);
    try {
      const file = await open(await this.find(ref));
      return {
        entry: file.entry,
        read: (offset, length) => file.read(offset, length),
        close: () => file.close().finally(end),
      };
    } catch (error) {
      end();
      throw asDomainError(error);
    }
  }

  private async find({ userId, sessionId, path }: FileRef): Promise<SessionFiles> {
    const sandbox = await this.sessions.sandbox(userId, sessionId);
    if (sandbox === undefined) throw conflict(SANDBOX_GONE);
    const { layout, call } = await this.reach.find(sandbox);
    const { workspace } = layout;
    const absolute = path.startsWith('/') ? path : `${workspace}/${path}`;
    const folder = path.replace(/\/+$/, '');
    const relative = folder.startsWith(`${workspace}/`)
      ? folder.slice(workspace.length + 1)
      : folder === workspace || (folder === '' && !path.startsWith('/'))
        ? ''
        : folder;
    return {
      sandboxId: sandbox.id,
      files: new FileAccess(call),
      path: absolute,
      // A list of a path that is no folder has one entry without a name.
      shown: (name) => [relative, name].filter((part) => part !== '').join('/'),
    };
  }
}

/** A list may have ended with other processes of the sandbox; then its folder is read again. */
function ifSandboxFailed(error: unknown): undefined {
  if (!(error instanceof SandboxError)) throw error;
}

function asDomainError(error: unknown): unknown {
  if (!(error instanceof SandboxError)) return error;
  switch (error.kind) {
    case 'missing':
      return notFound(NO_SUCH_FILE);
    case 'gone':
      return conflict(SANDBOX_GONE);
    case 'conflict':
      return conflict(`This is not possible: ${error.message}`);
    case 'full':
      return tooLarge(NO_ROOM);
    case 'unavailable':
      return new DomainError('unavailable', error.message, {}, { cause: error });
    case 'unsupported':
    case 'failed':
    case 'aborted':
      return new DomainError('upstream', error.message, {}, { cause: error });
  }
}
