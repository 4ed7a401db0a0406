import type { QueryResultRow } from 'pg';
import {
  type DataSource,
  type EntityManager,
  type EntityTarget,
  type FindOptionsWhere,
  IsNull,
  type QueryDeepPartialEntity,
} from 'typeorm';
import type { Pages } from '../common/lists/list-request.js';
import { isUuid } from '../common/storable.js';
import { listStatement, NEWEST, NEWEST_FIRST, readPages } from './list-pages.js';
import type { Sql, SqlExecutor, Statement } from './sql.js';
import { refuseEarly, requireRoom, requireRoomIn, ROOM } from './stored-text.js';

/** The columns that every resource with versions has. */
interface VersionedRow {
  id: string;
  userId: string;
  version: number;
  createdAt: string;
  updatedAt: string;
  archivedAt: string | null;
}

/** A snapshot, and its secrets encrypted once for the resource's row and once for the version's. */
export interface VersionedContent<Snapshot> {
  snapshot: Snapshot;
  sealed: { resource: string | null; version: string | null };
}

/** A version in a list. */
export interface ListedVersion<Snapshot> {
  version: number;
  snapshot: Snapshot;
  createdAt: string;
}

/** The tables of a resource and of its versions. Properties are named like the columns, in camel case. */
interface VersionedTables<Row extends VersionedRow> {
  resource: EntityTarget<Row>;
  table: string;
  version: EntityTarget<object>;
  versionTable: string;
  /** The column of the versions with the resource's id. */
  versionKey: string;
  /** The columns of the resource that a snapshot fills, with their types. */
  columns: Readonly<Record<string, string>>;
  /** The column of both tables with the encrypted secrets. */
  sealed: string;
}

const propertyOf = (column: string): string =>
  column.replace(/_(\w)/g, (_match, letter: string) => letter.toUpperCase());

const selected = (columns: readonly string[], table = ''): string =>
  columns.map((column) => `${table}${column} AS "${propertyOf(column)}"`).join(', ');

function statementsOf<Row extends VersionedRow>(tables: VersionedTables<Row>) {
  const { table, versionTable, versionKey, columns, sealed } = tables;
  const filled = Object.keys(columns);
  const shown = ['id', ...filled, 'version', 'created_at', 'updated_at', 'archived_at'];
  const all = ['user_id', sealed, ...shown];
  const record = Object.entries(columns).map(([column, type]) => `"${propertyOf(column)}" ${type}`);
  return {
    find: {
      name: `${table}-find`,
      text: `SELECT ${selected(all)} FROM ${table} WHERE id = $1 AND user_id = $2`,
    },
    insert: {
      name: `${table}-insert`,
      text: `
        WITH room AS (${ROOM({ user: '$2', snapshot: '$3::jsonb', sealed: '$5', limit: '$6' })}),
        resource AS (
          INSERT INTO ${table} (id, user_id, ${sealed}, ${filled.join(', ')})
          SELECT $1, room.id, $4, ${filled.map((column) => `s."${propertyOf(column)}"`).join(', ')}
          FROM room, jsonb_to_record($3) AS s (${record.join(', ')})
          RETURNING *
        ), first_version AS (
          INSERT INTO ${versionTable} (${versionKey}, version, snapshot, ${sealed})
          SELECT $1, 1, $3, $5 FROM room
        )
        SELECT ${selected(all)} FROM resource`,
    },
    findVersion: {
      name: `${table}-find-version`,
      text: `
        SELECT snapshot, ${sealed} AS sealed FROM ${versionTable} WHERE ${versionKey} = $1 AND version = $2`,
    },
    position: {
      name: `${table}-position`,
      text: `SELECT created_at AS "createdAt", id FROM ${table} WHERE id = $1 AND user_id = $2`,
    },
    list: listStatement({
      ...NEWEST_FIRST,
      name: `${table}-list`,
      from: `${table} t LEFT JOIN ${versionTable} v ON v.${versionKey} = t.id AND v.version = t.version`,
      where: 't.user_id = $4 AND t.archived_at IS NULL',
      bytes: 'coalesce(v.bytes, 0)',
      columns: selected(shown, 't.'),
    }),
    listVersions: listStatement({
      name: `${table}-list-versions`,
      key: 't.version',
      order: ['t.version'],
      direction: 'DESC',
      from: `${versionTable} t`,
      where: `t.${versionKey} = $3`,
      bytes: 't.bytes',
      columns: 't.version, t.snapshot, t.created_at AS "createdAt"',
    }),
  } satisfies Record<string, Statement>;
}

/**
 * The rows of a resource with versions, and of its versions. Reading and creating one are named statements, because each
 * request does one of them; TypeORM does the rest. An id that is not a UUID is treated like one that does not exist.
 */
export abstract class VersionedRows<
  Row extends VersionedRow,
  Snapshot extends object,
  Hidden extends keyof Row = never,
> {
  private readonly statements: ReturnType<typeof statementsOf>;

  protected constructor(
    private readonly tables: VersionedTables<Row>,
    protected readonly dataSource: DataSource,
    protected readonly sql: Sql,
    /** What a user may store in all versions, in bytes; 0 is no limit. */
    private readonly storedBytesPerUser: number,
  ) {
    this.statements = statementsOf(tables);
  }

  async find(userId: string, id: string): Promise<Row | undefined> {
    if (!isUuid(id)) return undefined;
    return (await this.sql.query<Row & QueryResultRow>(this.statements.find, [id, userId]))[0];
  }

  /** Active ones, newest first. @param after a position in the list. */
  list(
    userId: string,
    { after = NEWEST, limit }: { after?: readonly unknown[]; limit?: number },
  ): Pages<Omit<Row, 'userId' | Hidden>> {
    return readPages<Row & QueryResultRow>(this.sql, {
      statement: this.statements.list,
      values: [userId],
      from: after,
      positionOf: ({ createdAt, id }) => [createdAt, id],
      limit,
    });
  }

  /** Where in the list a resource stands, or stood before it was archived. */
  async position(userId: string, id: string): Promise<readonly unknown[] | undefined> {
    if (!isUuid(id)) return undefined;
    const { position } = this.statements;
    const [row] = await this.sql.query<{ createdAt: string; id: string }>(position, [id, userId]);
    return row && [row.createdAt, row.id];
  }

  /** Newest first. @param below only versions below it. */
  listVersionsUnscoped(
    id: string,
    { below, limit }: { below: number; limit?: number },
  ): Pages<ListedVersion<Snapshot>> {
    return readPages<ListedVersion<Snapshot> & QueryResultRow>(this.sql, {
      statement: this.statements.listVersions,
      values: [id],
      from: [below],
      positionOf: ({ version }) => [version],
      limit,
    });
  }

  async findVersionUnscoped(
    id: string,
    version: number,
  ): Promise<{ snapshot: Snapshot; sealed: string | null } | undefined> {
    const [row] = await this.sql.query<{ snapshot: Snapshot; sealed: string | null }>(
      this.statements.findVersion,
      [id, version],
    );
    return row;
  }

  /** @throws DomainError 422 when a version made of this cannot fit into what the user may store. */
  async refuseEarly(userId: string, definition: object): Promise<void> {
    await refuseEarly(this.sql, userId, definition, this.storedBytesPerUser);
  }

  /**
   * Inserts version 1 and its snapshot.
   * @param reserve runs first in the same transaction, if there is need of one.
   * @throws DomainError 422 when the user's stored text is used up.
   */
  async create(
    userId: string,
    id: string,
    content: VersionedContent<Snapshot>,
    reserve?: (sql: SqlExecutor, id: string) => Promise<void>,
  ): Promise<Row> {
    if (!reserve) return this.insert(this.sql, userId, id, content);
    return this.sql.transaction(async (sql) => {
      await reserve(sql, id);
      return this.insert(sql, userId, id, content);
    });
  }

  private async insert(
    sql: SqlExecutor,
    userId: string,
    id: string,
    { snapshot, sealed }: VersionedContent<Snapshot>,
  ): Promise<Row> {
    const [row] = await sql.query<Row & QueryResultRow>(this.statements.insert, [
      id,
      userId,
      JSON.stringify(snapshot),
      sealed.resource,
      sealed.version,
      this.storedBytesPerUser,
    ]);
    return requireRoom(row);
  }

  /**
   * Writes version N+1 and its snapshot if the version still is N and the resource active.
   * @throws DomainError 422 when the user's stored text is used up.
   */
  async replace(
    current: Pick<Row, 'id' | 'userId' | 'version'>,
    { snapshot, sealed }: VersionedContent<Snapshot>,
  ): Promise<Row | undefined> {
    const { id, userId } = current;
    const active = { id, userId, version: current.version };
    const version = current.version + 1;
    const limit = this.storedBytesPerUser;
    // One transaction, so that `now()` of the row and of its version are the same moment.
    return this.dataSource.transaction(async (manager) => {
      const columns = { ...snapshot, ...this.sealedAs(sealed.resource), version };
      if (!(await this.update(manager, active, columns))) return undefined;
      await requireRoomIn(manager, userId, snapshot, sealed.version, limit);
      await manager.insert(this.tables.version, {
        [propertyOf(this.tables.versionKey)]: id,
        version,
        snapshot,
        ...this.sealedAs(sealed.version),
      });
      return manager.findOneByOrFail(this.tables.resource, { id } as FindOptionsWhere<Row>);
    });
  }

  /** @returns whether it was active until now. */
  async archive(userId: string, id: string): Promise<boolean> {
    return this.update(this.dataSource.manager, { id, userId }, { archivedAt: () => 'now()' });
  }

  /** Changes an active resource. @returns whether there is such a one. */
  private async update(
    manager: EntityManager,
    which: { id: string; userId: string; version?: number },
    columns: object,
  ): Promise<boolean> {
    const { affected } = await manager.update(
      this.tables.resource,
      { ...which, archivedAt: IsNull() },
      { ...columns, updatedAt: () => 'now()' } as QueryDeepPartialEntity<Row>,
    );
    return affected === 1;
  }

  private sealedAs(text: string | null): object {
    return { [propertyOf(this.tables.sealed)]: text };
  }
}
