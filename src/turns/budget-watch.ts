import { Injectable, Logger } from '@nestjs/common';
import { Condition } from '../common/async.js';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { Budgets } from '../usage/budgets.js';
import { UsageCollector } from '../usage/usage-collector.service.js';

/** How often budgets are checked even without a notification. Usage that other processes have stored causes none. */
const CHECK_MS = 1_000;

/** Finds running turns whose session or user has used up a budget. */
@Injectable()
export class BudgetWatch {
  private readonly logger = new Logger('Budgets');
  private readonly stored = new Condition();

  constructor(
    private readonly budgets: Budgets,
    private readonly usage: UsageCollector,
  ) {
    usage.onStored(() => this.stored.notify());
  }

  /**
   * Checks whenever usage was stored, until the signal fires. The gateway refuses further requests of a turn that has
   * exceeded a budget.
   * @param running the ids of the turns to check. @param exceeded called with a turn and the reason for clients
   */
  async run(
    signal: AbortSignal,
    running: () => readonly string[],
    exceeded: (turnId: string, reason: string) => void,
  ): Promise<void> {
    signal.addEventListener('abort', () => this.stored.notify());
    while (!signal.aborted) {
      const seen = this.stored.seen();
      try {
        for (const [turnId, reason] of await this.budgets.exceededTurns(running())) {
          this.usage.block(turnId, reason);
          exceeded(turnId, reason);
        }
      } catch (error) {
        if (!isDatabaseUnavailable(error))
          this.logger.warn(`Budgets could not be checked: ${String(error)}`);
      }
      await this.stored.wait(seen, CHECK_MS);
    }
  }
}
