import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import type { OperatorAction } from './audit-log.js';

/** Rung when there is something to take. */
export const OPERATOR_ACTIONS = 'operator_actions';

const RECORD = {
  name: 'operator-actions-record',
  text: `INSERT INTO operator_actions (operator, action, object, result) VALUES ($1, $2, $3, $4)`,
};
const RING = { name: 'operator-actions-ring', text: `SELECT pg_notify($1, '')` };
const TAKE = {
  name: 'operator-actions-take',
  text: `
    WITH taken AS (
      DELETE FROM operator_actions WHERE id IN (
        SELECT id FROM operator_actions ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
      RETURNING id, operator, action, object, result, recorded_at)
    SELECT operator, action, object, result, recorded_at AS at FROM taken ORDER BY id`,
};

/**
 * Operators' commands on their way from the command line, whose output nobody collects, into the log of a service. They
 * wait in the database until a process takes them.
 */
@Injectable()
export class OperatorActions {
  constructor(private readonly sql: Sql) {}

  async record({ operator, action, object, result }: Omit<OperatorAction, 'at'>): Promise<void> {
    await this.sql.query(RECORD, [operator, action, object, result]);
    await this.sql.query(RING, [OPERATOR_ACTIONS]);
  }

  /**
   * Hands what is waiting to `write`, oldest first. Of several processes one gets it; if that one dies before it has
   * committed, another one gets it again.
   */
  async take(write: (action: OperatorAction) => void): Promise<void> {
    for (let taken = 1; taken > 0;) {
      taken = await this.sql.transaction(async (sql) => {
        const actions = await sql.query<OperatorAction & Record<string, unknown>>(TAKE);
        for (const action of actions) write(action);
        return actions.length;
      });
    }
  }
}
