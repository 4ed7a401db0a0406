import { Injectable } from '@nestjs/common';

/** Whether this process still takes traffic. */
@Injectable()
export class Readiness {
  private stopping = false;

  get draining(): boolean {
    return this.stopping;
  }

  /** The process is on its way out. */
  drain(): void {
    this.stopping = true;
  }
}
