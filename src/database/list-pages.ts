import type { QueryResultRow } from 'pg';
import type { Page } from '../common/lists/list-request.js';
import type { SqlExecutor, Statement } from './sql.js';

/** The maximum number of rows in a page. */
const PAGE_ROWS = 500;
/** A page ends after the row with which it reaches this size, in bytes of text as stored. */
const PAGE_BYTES = 2 ** 20;

/** How to read a list. All texts are SQL; their parameters follow the number of rows and the position. */
interface ListSql {
  name: string;
  /** The table, with the alias `t`, and its joins. */
  from: string;
  where: string;
  /** The columns of the primary key. */
  key: string;
  /** The columns that define the order and the position, the most significant first. */
  order: readonly string[];
  direction: 'ASC' | 'DESC';
  /** The size of a row, computed without reading its large columns. */
  bytes: string;
  columns: string;
}

/** Lists resources, newest first. */
export const NEWEST_FIRST = {
  order: ['t.created_at', 't.id'],
  direction: 'DESC',
  key: 't.id',
} as const;

/** The position before the first row of {@link NEWEST_FIRST}. */
export const NEWEST: readonly unknown[] = ['infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff'];

/**
 * Builds the statement that reads one page: it first reads the small columns of the rows, then as many complete rows as
 * fit. $1 is the number of rows to consider, $2 and following the position after which the page begins, then the
 * parameters of `where`.
 */
export function listStatement(list: ListSql): Statement {
  const { order, direction, where } = list;
  const names = order.map((_column, index) => `o${index}`);
  const sorted = (columns: readonly string[]) =>
    columns.map((column) => `${column} ${direction}`).join(', ');
  const behind = direction === 'DESC' ? '<' : '>';
  const position = order.map((_column, index) => `$${index + 2}`).join(', ');
  return {
    name: list.name,
    text: `
      WITH looked_at AS (
        SELECT ${list.key} AS key, ${order.map((column, index) => `${column} AS o${index}`).join(', ')},
               ${list.bytes} AS bytes
          FROM ${list.from}
         WHERE ${where} AND (${order.join(', ')}) ${behind} (${position})
         ORDER BY ${sorted(order)} LIMIT $1
      ), page AS (
        SELECT *, sum(bytes) OVER w - bytes AS before, row_number() OVER w AS number,
               count(*) OVER () AS total
          FROM looked_at WINDOW w AS (ORDER BY ${sorted(names)})
      )
      SELECT ${list.columns}, page.number AS "pageNumber", page.total AS "pageTotal"
        FROM page JOIN ${list.from} ON ${list.key} = page.key AND ${where}
       WHERE page.before < ${PAGE_BYTES}
       ORDER BY page.number`,
  };
}

interface PageRow {
  pageNumber: number;
  pageTotal: number;
}

/**
 * Reads a list page by page.
 * @param options `from`: the position after which to begin; `positionOf`: returns a row's position; `limit`: the
 *   maximum number of rows; `values`: the parameters of `where`.
 */
export async function* readPages<Row extends QueryResultRow>(
  sql: SqlExecutor,
  options: {
    statement: Statement;
    values: readonly unknown[];
    from: readonly unknown[];
    positionOf: (row: Row) => readonly unknown[];
    limit?: number;
  },
): AsyncGenerator<Page<Row>> {
  const { statement, values, positionOf } = options;
  let position = options.from;
  let left = options.limit ?? Infinity;
  for (;;) {
    const count = Math.min(left, PAGE_ROWS);
    const rows = await sql.query<Row & PageRow>(statement, [count, ...position, ...values]);
    const last = rows.at(-1);
    left -= rows.length;
    const seenAll = !last || (last.pageNumber === last.pageTotal && last.pageTotal < count);
    const complete = seenAll || left === 0;
    yield { rows, complete };
    if (complete || !last) return;
    position = positionOf(last);
  }
}
