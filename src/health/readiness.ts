import { type BeforeApplicationShutdown, Injectable } from '@nestjs/common';

/** Whether this process still takes traffic. */
@Injectable()
export class Readiness implements BeforeApplicationShutdown {
  draining = false;

  beforeApplicationShutdown(): void {
    this.draining = true;
  }
}
