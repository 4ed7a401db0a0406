import type { EntityManager } from 'typeorm';
import { unprocessable } from '../common/errors.js';
import type { Sql } from './sql.js';

/**
 * SQL that finds the user if another version of that size fits into their limit. It locks the user's row until the end
 * of the transaction, and a statement that waited for the lock evaluates its condition again. Triggers on the tables of
 * versions maintain the total. Takes placeholders of parameters; a limit of 0 means no limit.
 */
export const ROOM = (parameters: {
  user: string;
  snapshot: string;
  sealed: string;
  limit: string;
}): string => {
  const { user, snapshot, sealed, limit } = parameters;
  const most = `coalesce(u.stored_bytes_per_user, ${limit}::bigint)`;
  return `
    SELECT u.id FROM users u
     WHERE u.id = ${user}
       AND (${most} = 0 OR u.stored_bytes + stored_text_bytes(${snapshot}, ${sealed}) <= ${most})
       FOR NO KEY UPDATE`;
};

const ROOM_ALONE = ROOM({ user: '$1', snapshot: '$2::jsonb', sealed: '$3', limit: '$4' });

/** @throws DomainError 422 when the statement with {@link ROOM} found no user. */
export function requireRoom<Row>(row: Row | undefined): Row {
  if (row) return row;
  throw unprocessable(
    'The limit of stored text is reached: it counts all agents and environments of the user with all their versions. ' +
      'Delete environments that no session ever used, or ask the operator for a higher limit.',
  );
}

/** Smaller versions are sent to the database without checking first. Characters. */
const LARGE = 64 * 1024;
const MAY_FIT = {
  name: 'users-may-store',
  text: `
    SELECT u.id FROM users u, LATERAL (SELECT coalesce(u.stored_bytes_per_user, $3::bigint) AS most) l
     WHERE u.id = $1 AND (l.most = 0 OR u.stored_bytes + $2::bigint <= l.most)`,
};

/**
 * Rejects a large version that cannot fit before it is encrypted, encoded and sent to the database, because for
 * megabytes each of these steps blocks the event loop for milliseconds. {@link ROOM} still checks the versions that
 * pass.
 * @param definition the contents of the version, which take at least as many bytes as their texts have characters
 * @throws DomainError 422
 */
export async function refuseEarly(
  sql: Sql,
  userId: string,
  definition: object,
  limit: number,
): Promise<void> {
  const least = charactersIn(definition);
  if (least > LARGE) requireRoom((await sql.query(MAY_FIT, [userId, least, limit]))[0]);
}

function charactersIn(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce<number>((sum, member) => sum + charactersIn(member), 0);
}

/**
 * Checks that a version may be stored, and prevents others from using up the limit until the end of the transaction.
 * Call it after writing the resource's own row, because everyone must lock the two rows in this order.
 */
export async function requireRoomIn(
  manager: EntityManager,
  userId: string,
  snapshot: object,
  sealed: string | null,
  limit: number,
): Promise<void> {
  const values = [userId, JSON.stringify(snapshot), sealed, limit];
  const rows = await manager.query<unknown[]>(ROOM_ALONE, values);
  requireRoom(rows[0]);
}
