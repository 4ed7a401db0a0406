import type { SessionStatus } from '../session-transitions.js';
import { SESSION_STATUSES } from '../session-transitions.js';
import { ApiExtraModels, ApiProperty, getSchemaPath } from '@nestjs/swagger';

const STATUS_SCHEMA = { enum: SESSION_STATUSES, enumName: 'SessionStatus' };
const TIMESTAMP = '2026-01-31T12:00:00.123456+00:00';

/** A branch to check out. */
export class BranchCheckout {
  /** @example "branch" */
  type!: 'branch';
  name!: string;
}

/** A commit to check out. */
export class CommitCheckout {
  /** @example "commit" */
  type!: 'commit';
  sha!: string;
}

/** A repository of a session, without its token. */
@ApiExtraModels(BranchCheckout, CommitCheckout)
export class SessionResource {
  /** @example "git_repository" */
  type!: 'git_repository';
  /** @example "https://git.example.com/team/app.git" */
  url!: string;
  /** Below the workspace. */
  mount_path!: string;

  @ApiProperty({
    oneOf: [{ $ref: getSchemaPath(BranchCheckout) }, { $ref: getSchemaPath(CommitCheckout) }],
  })
  checkout?: BranchCheckout | CommitCheckout;
}

/** What a session's creation or a further prompt is answered with. */
export class AcceptedSession {
  @ApiProperty({ format: 'uuid' })
  id!: string;

  @ApiProperty(STATUS_SCHEMA)
  status!: SessionStatus;

  /** Where to read the session's events. */
  stream_url!: string;
}

/** One execution of an agent in a sandbox. */
export class SessionObject extends AcceptedSession {
  /** @example "session" */
  type!: 'session';

  @ApiProperty({ format: 'uuid' })
  agent_id!: string;

  /** The version of the agent that the session is pinned to. */
  agent_version!: number;

  @ApiProperty({ type: String, format: 'uuid', nullable: true })
  environment_id!: string | null;

  @ApiProperty({ type: Number, nullable: true })
  environment_version!: number | null;

  /** @example "shell" */
  provider!: string;

  /** Seconds of wall clock for a turn. */
  timeout!: number;

  resources!: SessionResource[];

  /** Turns ever queued. */
  turn_count!: number;

  /** The number of the latest turn. */
  current_turn!: number;

  @ApiProperty({ type: Number, nullable: true })
  exit_code!: number | null;

  @ApiProperty({ type: String, nullable: true })
  error!: string | null;

  @ApiProperty({ example: TIMESTAMP })
  created_at!: string;

  @ApiProperty({ example: TIMESTAMP })
  updated_at!: string;
}

export class SessionList {
  data!: SessionObject[];
}

/** One prompt and what became of it. */
export class TurnObject {
  @ApiProperty({ format: 'uuid' })
  id!: string;

  @ApiProperty({ format: 'uuid' })
  session_id!: string;

  /** From 1 on. */
  turn_number!: number;

  prompt!: string;

  @ApiProperty(STATUS_SCHEMA)
  status!: SessionStatus;

  @ApiProperty({ type: Number, nullable: true })
  exit_code!: number | null;

  @ApiProperty({ type: String, nullable: true })
  error!: string | null;

  @ApiProperty({ example: TIMESTAMP })
  created_at!: string;

  @ApiProperty({ type: String, nullable: true, example: TIMESTAMP })
  started_at!: string | null;

  @ApiProperty({ type: String, nullable: true, example: TIMESTAMP })
  ended_at!: string | null;
}

export class TurnList {
  data!: TurnObject[];
}
