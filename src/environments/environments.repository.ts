import { Injectable } from '@nestjs/common';
import { DataSource, type EntityManager, IsNull } from 'typeorm';
import { isUuid } from '../common/uuid.js';
import { Sql, type SqlExecutor } from '../database/sql.js';
import {
  type EnvironmentSnapshot,
  EnvironmentVersionEntity,
} from './entities/environment-version.entity.js';
import { EnvironmentEntity } from './entities/environment.entity.js';

/** A snapshot, and its `env_vars` sealed once for the environment's row and once for the version's. */
export interface EnvironmentContent {
  snapshot: EnvironmentSnapshot;
  sealed: { environment: string | null; version: string | null };
}

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
const FIND_VERSION = {
  name: 'environments-find-version',
  text: `
    SELECT snapshot, env_vars_sealed AS "envVarsSealed"
      FROM environment_versions WHERE environment_id = $1 AND version = $2`,
};

/** Environments and their versions in the database. An id that is no UUID is like one that is not there. */
@Injectable()
export class EnvironmentsRepository {
  constructor(
    private readonly dataSource: DataSource,
    private readonly sql: Sql,
  ) {}

  async find(userId: string, id: string): Promise<EnvironmentEntity | undefined> {
    if (!isUuid(id)) return undefined;
    return (await this.manager.findOneBy(EnvironmentEntity, { id, userId })) ?? undefined;
  }

  /** Active ones, newest first. */
  async list(userId: string): Promise<EnvironmentEntity[]> {
    return this.manager.find(EnvironmentEntity, {
      where: { userId, archivedAt: IsNull() },
      order: { createdAt: 'DESC', id: 'DESC' },
    });
  }

  /** Those of active environments. */
  async currentVersionsUnscoped(
    ids: readonly string[],
  ): Promise<{ id: string; version: number }[]> {
    return this.sql.query<{ id: string; version: number }>(CURRENT_VERSIONS, [ids]);
  }

  /** Newest first. */
  async listVersionsUnscoped(environmentId: string): Promise<EnvironmentVersionEntity[]> {
    return this.manager.find(EnvironmentVersionEntity, {
      where: { environmentId },
      order: { version: 'DESC' },
    });
  }

  /** Inserts version 1 and its snapshot. */
  async create(
    userId: string,
    id: string,
    content: EnvironmentContent,
  ): Promise<EnvironmentEntity> {
    return this.dataSource.transaction(async (manager) => {
      await manager.insert(EnvironmentEntity, { id, userId, ...columnsOf(content) });
      return snapshotAndRead(manager, id, 1, content);
    });
  }

  /** Writes version N+1 and its snapshot if the version still is N and the environment active. */
  async replace(
    current: Pick<EnvironmentEntity, 'id' | 'userId' | 'version'>,
    content: EnvironmentContent,
  ): Promise<EnvironmentEntity | undefined> {
    const { id, userId, version } = current;
    return this.dataSource.transaction(async (manager) => {
      const { affected } = await manager.update(
        EnvironmentEntity,
        { id, userId, version, archivedAt: IsNull() },
        { ...columnsOf(content), version: version + 1, updatedAt: () => 'now()' },
      );
      return affected ? snapshotAndRead(manager, id, version + 1, content) : undefined;
    });
  }

  /** @returns whether it was active until now. */
  async archive(userId: string, id: string): Promise<boolean> {
    const { affected } = await this.manager.update(
      EnvironmentEntity,
      { id, userId, archivedAt: IsNull() },
      { archivedAt: () => 'now()', updatedAt: () => 'now()' },
    );
    return affected === 1;
  }

  /**
   * Deletes it with its versions unless a session ever referenced it. A session that is being created at the same time
   * holds the row's lock from {@link markReferenced} on, and the condition is judged again after it.
   */
  async deleteUnreferenced(userId: string, id: string): Promise<boolean> {
    const { affected } = await this.manager.delete(EnvironmentEntity, {
      id,
      userId,
      referenced: false,
    });
    return affected === 1;
  }

  /** Inside the transaction that inserts the session. */
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
  ): Promise<{ id: string; version: number; archived: boolean } | undefined> {
    if (!isUuid(id)) return undefined;
    const [row] = await this.sql.query<{ id: string; version: number; archived: boolean }>(
      FIND_PIN,
      [id, userId],
    );
    return row;
  }

  async findVersionUnscoped(
    id: string,
    version: number,
  ): Promise<{ snapshot: EnvironmentSnapshot; envVarsSealed: string | null } | undefined> {
    const [row] = await this.sql.query<{
      snapshot: EnvironmentSnapshot;
      envVarsSealed: string | null;
    }>(FIND_VERSION, [id, version]);
    return row;
  }

  private get manager(): EntityManager {
    return this.dataSource.manager;
  }
}

function columnsOf({ snapshot, sealed }: EnvironmentContent) {
  return { ...snapshot, envVarsSealed: sealed.environment };
}

/** In one transaction with the row, so that `now()` of both is the same moment. */
async function snapshotAndRead(
  manager: EntityManager,
  id: string,
  version: number,
  { snapshot, sealed }: EnvironmentContent,
): Promise<EnvironmentEntity> {
  await manager.insert(EnvironmentVersionEntity, {
    environmentId: id,
    version,
    snapshot,
    envVarsSealed: sealed.version,
  });
  return manager.findOneByOrFail(EnvironmentEntity, { id });
}
