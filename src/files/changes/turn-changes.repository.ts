import { Injectable } from '@nestjs/common';
import { AppConfig } from '../../config/app-config.js';
import { Sql } from '../../database/sql.js';
import type { ChangedFile } from './parse-changes.js';

/** A turn that a worker has claimed, or a turn that has ended. */
export interface TurnKey {
  sessionId: string;
  turnNumber: number;
}

/** A worker's claim of a turn. Nothing is written after it was lost. */
export interface ClaimKey extends TurnKey {
  id: string;
  fencing: number;
}

/** How a repository of a session differs from the commit that it began with. */
export interface RepositoryChanges {
  mountPath: string;
  /** `null`: it was empty. */
  base: string | null;
  /** `null` if there is no commit. */
  head: string | null;
  files: ChangedFile[];
}

/** The changes at the end of a turn, with the length of the whole patch. */
export interface NewChanges extends RepositoryChanges {
  patchBytes: number;
}

export interface KeptChanges extends NewChanges {
  /** How much of the patch is kept. */
  keptBytes: number;
}

const OURS = `EXISTS (SELECT FROM turns WHERE id = $1 AND fencing = $2 AND status = 'running')`;

const DELETE = {
  name: 'turn-changes-delete',
  text: `
    DELETE FROM turn_changes WHERE session_id = $3 AND turn = $4 AND mount_path = $5 AND ${OURS}`,
};
const INSERT = {
  name: 'turn-changes-insert',
  text: `
    INSERT INTO turn_changes (session_id, turn, mount_path, base_sha, head_sha, files, patch_bytes)
    SELECT $3, $4, $5, $6, $7, $8, $9 WHERE ${OURS} RETURNING turn`,
};
const INSERT_PIECE = {
  name: 'turn-patches-insert',
  text: `
    INSERT INTO turn_patches (session_id, turn, mount_path, piece, content)
    SELECT $3, $4, $5, $6, $7 WHERE ${OURS} RETURNING turn`,
};
const COMPLETE = {
  name: 'turn-changes-complete',
  text: `
    UPDATE turn_changes SET complete = true
    WHERE session_id = $3 AND turn = $4 AND mount_path = $5 AND ${OURS}`,
};
const FIND = {
  name: 'turn-changes-find',
  text: `
    SELECT mount_path AS "mountPath", base_sha AS base, head_sha AS head, files,
      patch_bytes::float8 AS "patchBytes", (
        SELECT coalesce(sum(octet_length(content)), 0)::float8 FROM turn_patches p
        WHERE p.session_id = $1 AND p.turn = $2 AND p.mount_path = c.mount_path
      ) AS "keptBytes"
    FROM turn_changes c
    WHERE session_id = $1 AND turn = $2 AND complete
      AND created_at >= now() - make_interval(days => $3)
    ORDER BY mount_path`,
};
const PIECE = {
  name: 'turn-patches-find',
  text: `
    SELECT content FROM turn_patches
    WHERE session_id = $1 AND turn = $2 AND mount_path = $3 AND piece = $4`,
};
const PURGE = {
  name: 'turn-changes-purge',
  text: `
    DELETE FROM turn_changes WHERE ctid = ANY (ARRAY(
      SELECT c.ctid FROM turn_changes c
      WHERE c.created_at < now() - make_interval(days => $1)
        OR NOT EXISTS (SELECT FROM sessions s WHERE s.id = c.session_id)
      LIMIT $2))
    RETURNING turn`,
};
/** Each may have a patch of some megabytes. */
const PURGE_AT_ONCE = 10;

/** What sessions had changed at the end of each turn. Rows past retention are invisible even before they are purged. */
@Injectable()
export class TurnChanges {
  constructor(
    private readonly sql: Sql,
    private readonly config: AppConfig,
  ) {}

  /**
   * Stores the changes of a repository, piece by piece. Readers see them when they are complete. Replaces what an earlier
   * attempt has stored.
   * @throws Error if the turn belongs to another worker
   */
  async keep(
    { id, fencing, sessionId, turnNumber }: ClaimKey,
    { mountPath, base, head, files, patchBytes }: NewChanges,
    patch: AsyncIterable<Buffer>,
  ): Promise<void> {
    const key = [id, fencing, sessionId, turnNumber, mountPath];
    await this.sql.query(DELETE, key);
    const row = [...key, base, head, JSON.stringify(files), patchBytes];
    requireOurs(await this.sql.query(INSERT, row));
    let piece = 0;
    for await (const content of patch) {
      requireOurs(await this.sql.query(INSERT_PIECE, [...key, piece, content]));
      piece += 1;
    }
    await this.sql.query(COMPLETE, key);
  }

  /** The changes of all repositories at the end of a turn. The caller must have checked who owns the session. */
  async findUnscoped({ sessionId, turnNumber }: TurnKey): Promise<KeptChanges[]> {
    const values = [sessionId, turnNumber, this.config.logRetentionDays];
    return this.sql.query<KeptChanges & Record<string, unknown>>(FIND, values);
  }

  /** The pieces of a patch that was found. */
  async *patchUnscoped(
    { sessionId, turnNumber }: TurnKey,
    mountPath: string,
  ): AsyncGenerator<Buffer, void, undefined> {
    for (let piece = 0; ; piece += 1) {
      const values = [sessionId, turnNumber, mountPath, piece];
      const [row] = await this.sql.query<{ content: Buffer }>(PIECE, values);
      if (row === undefined) return;
      yield row.content;
    }
  }

  /** Deletes what is past retention or belongs to deleted sessions, in small statements. */
  async purge(): Promise<void> {
    const values = [this.config.logRetentionDays, PURGE_AT_ONCE];
    for (;;) {
      if ((await this.sql.query(PURGE, values)).length < PURGE_AT_ONCE) return;
    }
  }
}

function requireOurs(rows: readonly unknown[]): void {
  if (rows.length === 0) throw new Error('the turn belongs to another worker');
}
