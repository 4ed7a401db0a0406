import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import { KeyRing } from '../secrets/key-ring.js';
import { secretContext } from '../secrets/secret-contexts.js';
import type { PublicResource } from './session-resources.js';

const FIND = {
  name: 'sessions-plan',
  text: `
    SELECT s.agent_id AS "agentId", s.agent_version AS "agentVersion",
      s.environment_id AS "environmentId", s.environment_version AS "environmentVersion",
      s.resources, s.secrets_sealed AS sealed, coalesce(b.sandbox_id, s.id) AS "sandboxId"
    FROM sessions s LEFT JOIN sandboxes b ON b.session_id = s.id
    WHERE s.id = $1`,
};

/** What a session is pinned to, with its secrets open. For the runner. */
export interface SessionPlan {
  agentId: string;
  agentVersion: number;
  environmentId: string | null;
  environmentVersion: number | null;
  resources: PublicResource[];
  /** Tokens by the index of their resource. */
  tokens: Record<string, string>;
  /** Its sandbox: named by the session's own id, unless it has adopted another one. */
  sandboxId: string;
}

@Injectable()
export class SessionPlans {
  constructor(
    private readonly sql: Sql,
    private readonly keys: KeyRing,
  ) {}

  /** @throws Error when the session is gone. */
  async ofUnscoped(sessionId: string): Promise<SessionPlan> {
    const [row] = await this.sql.query<Omit<SessionPlan, 'tokens'> & { sealed: string | null }>(
      FIND,
      [sessionId],
    );
    if (!row) throw new Error('The session is gone');
    const { sealed, ...plan } = row;
    return { ...plan, tokens: this.keys.openRecord(sealed, secretContext.session(sessionId)) };
  }
}
