import { Injectable } from '@nestjs/common';
import { Sql } from '../database/sql.js';
import type { ModelApi } from '../runtimes/agent-runtime.js';
import { KeyRing, secretContext } from '../secrets/key-ring.js';
import type { PublicResource, UploadedFile } from '../sessions/session-resources.js';

const FIND = {
  name: 'sessions-plan',
  text: `
    SELECT s.agent_id AS "agentId", s.agent_version AS "agentVersion",
      s.environment_id AS "environmentId", s.environment_version AS "environmentVersion",
      s.resources, s.secrets_sealed AS sealed, coalesce(b.sandbox_id, s.id) AS "sandboxId",
      s.user_id AS "userId", (
        SELECT jsonb_object_agg(k.provider, k.key_sealed) FROM user_keys k WHERE k.user_id = s.user_id
      ) AS "userKeysSealed"
    FROM sessions s LEFT JOIN sandboxes b ON b.session_id = s.id
    WHERE s.id = $1`,
};

const UPLOADS = {
  name: 'session-files-find',
  text: `SELECT path, content FROM session_files WHERE session_id = $1 ORDER BY path`,
};
const FORGET_UPLOADS = {
  name: 'session-files-forget',
  text: `DELETE FROM session_files WHERE session_id = $1`,
};

/** The pinned versions of a session with decrypted secrets. For the runner. */
export interface SessionPlan {
  agentId: string;
  agentVersion: number;
  environmentId: string | null;
  environmentVersion: number | null;
  resources: PublicResource[];
  /** Tokens by the index of their resource. */
  tokens: Record<string, string>;
  /** The id of the sandbox. It equals the session's id unless the session has adopted a warm sandbox. */
  sandboxId: string;
  /** The user's own key for a model API. */
  ownKey: (api: ModelApi) => string | undefined;
}

interface PlanRow extends Record<string, unknown>, Omit<SessionPlan, 'tokens' | 'ownKey'> {
  sealed: string | null;
  userId: string;
  userKeysSealed: Partial<Record<ModelApi, string>> | null;
}

@Injectable()
export class SessionPlans {
  constructor(
    private readonly sql: Sql,
    private readonly keys: KeyRing,
  ) {}

  /** @throws Error if the session was deleted. */
  async ofUnscoped(sessionId: string): Promise<SessionPlan> {
    const [row] = await this.sql.query<PlanRow>(FIND, [sessionId]);
    if (!row) throw new Error('The session is gone');
    const { sealed, userId, userKeysSealed, ...plan } = row;
    return {
      ...plan,
      tokens: this.keys.openRecord(sealed, secretContext.session(sessionId)),
      ownKey: (api) => {
        const own = userKeysSealed?.[api];
        return own && this.keys.open(own, secretContext.userKey(userId, api));
      },
    };
  }

  /** The files that a session was given and that are not in its sandbox yet. */
  async uploadsUnscoped(sessionId: string): Promise<UploadedFile[]> {
    return this.sql.query<UploadedFile & Record<string, unknown>>(UPLOADS, [sessionId]);
  }

  async forgetUploadsUnscoped(sessionId: string): Promise<void> {
    await this.sql.query(FORGET_UPLOADS, [sessionId]);
  }
}
