import {
  type BeforeApplicationShutdown,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { Notifications } from '../database/notifications.js';
import { AuditLog } from './audit-log.js';
import { OPERATOR_ACTIONS, OperatorActions } from './operator-actions.repository.js';

/** Writes the audit lines of operators' commands: at once when it hears of one, and at the start those that waited. */
@Injectable()
export class OperatorAudit implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(OperatorAudit.name);
  private readonly subscriptions: (() => void)[] = [];
  private taking: Promise<void> | undefined;
  private rung = false;

  constructor(
    private readonly actions: OperatorActions,
    private readonly notifications: Notifications,
    private readonly log: AuditLog,
  ) {}

  onApplicationBootstrap(): void {
    this.subscriptions.push(
      this.notifications.subscribe(OPERATOR_ACTIONS, () => this.ring()),
      this.notifications.onGap(() => this.ring()),
    );
    this.ring();
  }

  async beforeApplicationShutdown(): Promise<void> {
    for (const end of this.subscriptions) end();
    await this.taking;
  }

  private ring(): void {
    this.rung = true;
    this.taking ??= this.takeAll().finally(() => {
      this.taking = undefined;
    });
  }

  private async takeAll(): Promise<void> {
    while (this.rung) {
      this.rung = false;
      try {
        await this.actions.take((action) => this.log.write(action));
      } catch (error) {
        // After an outage of the database there is a gap, which rings.
        if (!isDatabaseUnavailable(error)) this.logger.warn(`Not taken: ${String(error)}`);
      }
    }
  }
}
