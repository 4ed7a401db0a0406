import { Injectable } from '@nestjs/common';
import { DataSource } from 'typeorm';
import { isUuid } from '../common/storable.js';
import { AppConfig } from '../config/app-config.js';
import { Sql, type SqlExecutor } from '../database/sql.js';
import { VersionedRows } from '../database/versioned-rows.js';
import {
  type EnvironmentSnapshot,
  EnvironmentVersionEntity,
  EnvironmentEntity,
} from './entities/environment.entity.js';

const MARK_REFERENCED = {
  name: 'environments-mark-referenced',
  text: `
    UPDATE environments SET referenced = true
     WHERE id = $1 AND user_id = $2 AND archived_at IS NULL
 RETURNING version`,
};
const FIND_PIN = {
  name: 'environments-find-pin',
  text: `
    SELECT id, version, archived_at IS NOT NULL AS archived
      FROM environments WHERE id = $1 AND user_id = $2`,
};
const CURRENT_VERSIONS = {
  name: 'environments-current-versions',
  text: 'SELECT id, version FROM environments WHERE id = ANY ($1) AND archived_at IS NULL',
};

/** Environments and their versions in the database. */
@Injectable()
export class EnvironmentsRepository extends VersionedRows<
  EnvironmentEntity,
  EnvironmentSnapshot,
  'envVarsSealed' | 'referenced'
> {
  constructor(dataSource: DataSource, sql: Sql, config: AppConfig) {
    const tables = {
      resource: EnvironmentEntity,
      table: 'environments',
      version: EnvironmentVersionEntity,
      versionTable: 'environment_versions',
      versionKey: 'environment_id',
      columns: {
        name: 'text',
        packages: 'jsonb',
        env_var_keys: 'text[]',
        setup_script: 'text',
        networking: 'jsonb',
      },
      sealed: 'env_vars_sealed',
    };
    super(tables, dataSource, sql, config.storedBytesPerUser);
  }

  /** The current versions of the active ones among these environments. */
  async currentVersionsUnscoped(
    ids: readonly string[],
  ): Promise<{ id: string; version: number }[]> {
    return this.sql.query<{ id: string; version: number }>(CURRENT_VERSIONS, [ids]);
  }

  /**
   * Deletes it with its versions unless a session ever referenced it. If a session is being created at the same time,
   * {@link markReferenced} has locked the row, and PostgreSQL evaluates the condition again after waiting for the lock.
   */
  async deleteUnreferenced(userId: string, id: string): Promise<boolean> {
    const { affected } = await this.dataSource.manager.delete(EnvironmentEntity, {
      id,
      userId,
      referenced: false,
    });
    return affected === 1;
  }

  /** Call it in the transaction that inserts the session. */
  async markReferenced(
    sql: SqlExecutor,
    userId: string,
    id: string,
  ): Promise<{ version: number } | undefined> {
    const [row] = await sql.query<{ version: number }>(MARK_REFERENCED, [id, userId]);
    return row;
  }

  async findPin(
    userId: string,
    id: string,
    sql: SqlExecutor = this.sql,
  ): Promise<{ id: string; version: number; archived: boolean } | undefined> {
    if (!isUuid(id)) return undefined;
    const [row] = await sql.query<{ id: string; version: number; archived: boolean }>(FIND_PIN, [
      id,
      userId,
    ]);
    return row;
  }
}
