import { Logger } from '@nestjs/common';
import type { Metrics } from '../../metrics/metrics.js';
import type { UnknownStates } from '../../supervisor/sandbox-error.js';

/** Tells operators of launches whose state a driver cannot tell: in the log, and by a gauge. */
export class UnknownStatesReport implements UnknownStates {
  private readonly logger = new Logger('Sandbox');
  private readonly current = new Set<string>();

  /** @param metrics where there are any. */
  constructor(metrics: Metrics | undefined) {
    metrics?.gauge(
      'unknown_launch_states',
      'Launches that this process follows and cannot tell whether they run; it waits until it can',
      () => this.current.size,
    );
  }

  began(what: string, error: unknown): void {
    this.current.add(what);
    this.logger.warn(`The state of ${what} is unknown and waited for: ${String(error)}`);
  }

  ended(what: string): void {
    this.current.delete(what);
    this.logger.log(`The state of ${what} is known again`);
  }
}
