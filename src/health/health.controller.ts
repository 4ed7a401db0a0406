import { Controller, Get } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { Refusal } from '../common/errors.js';
import { Open } from '../common/open.decorator.js';
import { Sql } from '../database/sql.js';
import { Readiness } from './readiness.js';

const PING = { name: 'health-ping', text: 'SELECT 1' };

@ApiExcludeController()
@Controller()
export class HealthController {
  constructor(
    private readonly sql: Sql,
    private readonly readiness: Readiness,
  ) {}

  /** Alive: the process answers. */
  @Open()
  @Get('healthz')
  healthz(): { status: string } {
    return { status: 'ok' };
  }

  /** Ready: the database answers and the process is not on its way out. */
  @Open()
  @Get('readyz')
  async readyz(): Promise<{ status: string }> {
    if (this.readiness.draining) throw new Refusal('unavailable', 'The service is shutting down');
    await this.sql.query(PING);
    return { status: 'ready' };
  }
}
