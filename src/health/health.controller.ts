import { Controller, Get } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { Refusal } from '../common/errors.js';
import { Open } from '../common/open.decorator.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { Sql } from '../database/sql.js';
import { AliveResponse, ReadyResponse } from './dto/health-response.dto.js';
import { Readiness } from './readiness.js';

const PING = { name: 'health-ping', text: 'SELECT 1' };

@ApiTags('operations')
@Controller()
export class HealthController {
  constructor(
    private readonly sql: Sql,
    private readonly readiness: Readiness,
  ) {}

  /** Alive: the process answers. */
  @Operation({ id: 'checkHealth' })
  @Open()
  @Get('healthz')
  healthz(): AliveResponse {
    return { status: 'ok' };
  }

  /** Ready: the database answers and the process is not on its way out. */
  @Operation({
    id: 'checkReadiness',
    refusals: {
      503: ['The service is shutting down', 'The database is unavailable; try again shortly'],
    },
  })
  @Open()
  @Get('readyz')
  async readyz(): Promise<ReadyResponse> {
    if (this.readiness.draining) throw new Refusal('unavailable', 'The service is shutting down');
    await this.sql.query(PING);
    return { status: 'ready' };
  }
}
