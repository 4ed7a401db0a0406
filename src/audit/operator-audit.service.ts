import {
  Injectable,
  type BeforeApplicationShutdown,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { type OperatorAction, AuditLog } from './audit-log.js';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { Notifications } from '../database/notifications.js';

/** The notification channel that announces new actions. */
export const OPERATOR_ACTIONS = 'operator_actions';

const RECORD = {
  name: 'operator-actions-record',
  text: `INSERT INTO operator_actions (operator, action, object, result) VALUES ($1, $2, $3, $4)`,
};
const NOTIFY = { name: 'operator-actions-notify', text: `SELECT pg_notify($1, '')` };
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
 * Passes audit records of operators to the service, which writes them to its log, because the output of the command line
 * is not collected. The records wait in the database until a process takes them.
 */
@Injectable()
export class OperatorActions {
  constructor(private readonly sql: Sql) {}

  async record({ operator, action, object, result }: Omit<OperatorAction, 'at'>): Promise<void> {
    await this.sql.query(RECORD, [operator, action, object, result]);
    await this.sql.query(NOTIFY, [OPERATOR_ACTIONS]);
  }

  /**
   * Passes waiting actions to `write`, oldest first. Each goes to only one process, and to another one if that process
   * dies before the commit.
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

/**
 * Writes the audit lines of operators' commands: when a notification arrives, and at the start for those that are
 * waiting.
 */
@Injectable()
export class OperatorAudit implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(OperatorAudit.name);
  private readonly subscriptions: (() => void)[] = [];
  private taking: Promise<void> | undefined;
  private due = false;

  constructor(
    private readonly actions: OperatorActions,
    private readonly notifications: Notifications,
    private readonly log: AuditLog,
  ) {}

  onApplicationBootstrap(): void {
    this.subscriptions.push(
      this.notifications.subscribe(OPERATOR_ACTIONS, () => this.look()),
      this.notifications.onGap(() => this.look()),
    );
    this.look();
  }

  async beforeApplicationShutdown(): Promise<void> {
    for (const end of this.subscriptions) end();
    await this.taking;
  }

  private look(): void {
    this.due = true;
    this.taking ??= this.takeAll().finally(() => {
      this.taking = undefined;
    });
  }

  private async takeAll(): Promise<void> {
    while (this.due) {
      this.due = false;
      try {
        await this.actions.take((action) => this.log.write(action));
      } catch (error) {
        // After an outage of the database there is a gap, which triggers this again.
        if (!isDatabaseUnavailable(error)) this.logger.warn(`Not taken: ${String(error)}`);
      }
    }
  }
}
