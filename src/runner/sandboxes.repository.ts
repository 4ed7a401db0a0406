import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';

const DOOM_IDLE = {
  name: 'sandboxes-doom-idle',
  text: `
    UPDATE sandboxes SET doomed_at = now()
    WHERE idle_since <= now() - make_interval(secs => $1) AND doomed_at IS NULL`,
};
const DOOMED = {
  name: 'sandboxes-doomed',
  text: `
    SELECT session_id AS id FROM sandboxes
    WHERE doomed_at IS NOT NULL AND driver = $1 AND host IS NOT DISTINCT FROM $2
    ORDER BY doomed_at LIMIT 100`,
};
const FORGET = {
  name: 'sandboxes-forget',
  text: 'DELETE FROM sandboxes WHERE session_id = $1 AND doomed_at IS NOT NULL',
};
const KNOWN = {
  name: 'sandboxes-known',
  text: 'SELECT session_id AS id FROM sandboxes WHERE session_id = ANY ($1)',
};

/** The record of which sandboxes there are meant to be. */
@Injectable()
export class SandboxesRepository {
  constructor(private readonly sql: Sql) {}

  /** Gives up the sandboxes that have not been used for so long. */
  async doomIdle(idleSeconds: number): Promise<void> {
    await this.sql.query(DOOM_IDLE, [idleSeconds]);
  }

  async doomed(driver: string, host: string | null): Promise<string[]> {
    return (await this.sql.query<{ id: string }>(DOOMED, [driver, host])).map((row) => row.id);
  }

  async forget(sessionId: string): Promise<void> {
    await this.sql.query(FORGET, [sessionId]);
  }

  /** Which of these sandboxes are on record. */
  async known(sessionIds: readonly string[]): Promise<Set<string>> {
    const rows = await this.sql.query<{ id: string }>(KNOWN, [sessionIds]);
    return new Set(rows.map((row) => row.id));
  }
}
