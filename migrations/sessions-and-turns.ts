import type { MigrationInterface, QueryRunner } from 'typeorm';

export class SessionsAndTurns1763700000004 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`
      CREATE TABLE sessions (
        id                  uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
        user_id             uuid        NOT NULL REFERENCES users (id),
        agent_id            uuid        NOT NULL,
        agent_version       integer     NOT NULL,
        environment_id      uuid,
        environment_version integer,
        provider            text        NOT NULL,
        status              text        NOT NULL DEFAULT 'pending'
          CHECK (status IN ('pending', 'running', 'completed', 'failed', 'terminated')),
        timeout             integer     NOT NULL,
        resources           jsonb       NOT NULL,
        secrets_sealed      text,
        turn_count          integer     NOT NULL DEFAULT 1,
        current_turn        integer     NOT NULL DEFAULT 1,
        exit_code           integer,
        error               text,
        created_at          timestamptz NOT NULL DEFAULT now(),
        updated_at          timestamptz NOT NULL DEFAULT now(),
        FOREIGN KEY (agent_id, agent_version) REFERENCES agent_versions (agent_id, version),
        FOREIGN KEY (environment_id, environment_version)
          REFERENCES environment_versions (environment_id, version)
      )`);
    await runner.query(
      `CREATE INDEX sessions_of_user ON sessions (user_id, created_at DESC, id DESC)`,
    );
    await runner.query(`
      CREATE INDEX sessions_active_of_user ON sessions (user_id)
        WHERE status IN ('pending', 'running')`);

    // The rows of turns are the queue. lease_owner, lease_expires_at and fencing identify the worker that may work on a
    // turn. commit_seq counts the writes of its output, so that a retry of a write is not applied twice. spool_* is the
    // position in the runtime's spool up to which the output is in the log.
    await runner.query(`
      CREATE TABLE turns (
        id               uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
        session_id       uuid        NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        turn_number      integer     NOT NULL,
        prompt           text        NOT NULL,
        timeout          integer     NOT NULL,
        status           text        NOT NULL DEFAULT 'pending'
          CHECK (status IN ('pending', 'running', 'completed', 'failed', 'terminated')),
        exit_code        integer,
        error            text,
        created_at       timestamptz NOT NULL DEFAULT now(),
        started_at       timestamptz,
        ended_at         timestamptz,
        lease_owner      text,
        lease_expires_at timestamptz,
        fencing          bigint      NOT NULL DEFAULT 0,
        commit_seq       bigint      NOT NULL DEFAULT 0,
        progress         jsonb       NOT NULL DEFAULT '{}',
        spool_offset     bigint      NOT NULL DEFAULT 0,
        spool_stdout     bigint      NOT NULL DEFAULT 0,
        spool_stderr     bigint      NOT NULL DEFAULT 0,
        first_output_id  bigint,
        last_log_id      bigint      NOT NULL DEFAULT 0,
        active_at        timestamptz,
        stale_count      integer     NOT NULL DEFAULT 0,
        UNIQUE (session_id, turn_number)
      )`);
    await runner.query(`CREATE INDEX turns_pending ON turns (created_at) WHERE status = 'pending'`);
    await runner.query(
      `CREATE INDEX turns_running ON turns (lease_expires_at) WHERE status = 'running'`,
    );

    // A row is written before a sandbox is created and deleted after it is gone. It outlives the session's row.
    await runner.query(`
      CREATE TABLE sandboxes (
        session_id uuid        PRIMARY KEY,
        driver     text        NOT NULL,
        host       text,
        created_at timestamptz NOT NULL DEFAULT now(),
        idle_since timestamptz,
        doomed_at  timestamptz
      )`);
    await runner.query(
      `CREATE INDEX sandboxes_doomed ON sandboxes (doomed_at) WHERE doomed_at IS NOT NULL`,
    );
    await runner.query(
      `CREATE INDEX sandboxes_idle ON sandboxes (idle_since) WHERE idle_since IS NOT NULL`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`DROP TABLE sandboxes, turns, sessions`);
  }
}
