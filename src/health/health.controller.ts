import { Injectable, Controller, Get } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { DomainError } from '../common/errors.js';
import { Public } from '../common/request-decorators.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { Sql } from '../database/sql.js';
import { AliveResponse, ReadyResponse } from './health-response.dto.js';

/** Readiness of this process. */
@Injectable()
export class Readiness {
  private stopping = false;
  private ask: () => string | null = () => null;

  get draining(): boolean {
    return this.stopping;
  }

  /** Why this process is not ready; `null` if it is. */
  get problem(): string | null {
    return this.ask();
  }

  /** Adds a check to readiness. @param ask returns the problem, or `null` for none */
  dependOn(ask: () => string | null): void {
    this.ask = ask;
  }

  /** Marks the process as stopping. */
  drain(): void {
    this.stopping = true;
  }
}

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
  @Public()
  @Get('healthz')
  healthz(): AliveResponse {
    return { status: 'ok' };
  }

  /**
   * Ready: the database answers and the process is not on its way out.
   * @remarks A process with `APP_ROLE=worker` also has to be able to make sandboxes.
   */
  @Operation({
    id: 'checkReadiness',
    refusals: {
      503: [
        'The service is shutting down',
        'The database is unavailable; try again shortly',
        'The worker cannot make sandboxes: bubblewrap not installed: run `apt-get install -y bubblewrap`',
      ],
    },
  })
  @Public()
  @Get('readyz')
  async readyz(): Promise<ReadyResponse> {
    if (this.readiness.draining)
      throw new DomainError('unavailable', 'The service is shutting down');
    await this.sql.query(PING);
    const { problem } = this.readiness;
    if (problem !== null) throw new DomainError('unavailable', problem);
    return { status: 'ready' };
  }
}
