import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { Integer, Timestamp, Uuid } from '../../common/openapi/properties.js';
import { SESSION_STATUSES, type SessionStatus } from '../session-transitions.js';
import { type BranchCheckout, CheckoutDto, type CommitCheckout } from './create-session.dto.js';

const STATUS_SCHEMA = { enum: SESSION_STATUSES, enumName: 'SessionStatus' };
const STREAM_URL = '/sessions/0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10/stream';

/** A repository of a session, without its token. */
@ApiSchema({ name: 'GitRepository', description: 'A repository of a session, without its token.' })
export class SessionResource {
  type!: 'git_repository';
  /** @example "https://git.example.com/team/app.git" */
  url!: string;
  /**
   * Below the workspace.
   * @example "app"
   */
  mount_path!: string;

  /** Left out where the default branch was taken. */
  @ApiProperty({ type: CheckoutDto })
  checkout?: BranchCheckout | CommitCheckout;
}

/** What a session's creation or a further prompt is answered with. */
@ApiSchema({
  name: 'AcceptedSession',
  description: 'A turn was queued; watch it at `stream_url`.',
})
export class AcceptedSession {
  @Uuid()
  id!: string;

  @ApiProperty({ ...STATUS_SCHEMA, example: 'pending' })
  status!: SessionStatus;

  /** Where to read the session's events: a path, or an absolute address where the service knows its own. */
  @ApiProperty({ example: STREAM_URL })
  stream_url!: string;
}

/** One execution of an agent in a sandbox. */
@ApiSchema({ name: 'Session', description: 'One execution of an agent in a sandbox.' })
export class SessionObject {
  @Uuid()
  id!: string;

  @ApiProperty()
  type!: 'session';

  @ApiProperty({ ...STATUS_SCHEMA, example: 'completed' })
  status!: SessionStatus;

  @Uuid()
  agent_id!: string;

  /** The version of the agent that the session is pinned to. */
  @Integer({ minimum: 1, example: 1 })
  agent_version!: number;

  @Uuid({ nullable: true })
  environment_id!: string | null;

  /** The version of the environment that the session is pinned to. */
  @Integer({ nullable: true, minimum: 1, example: 1 })
  environment_version!: number | null;

  /** The agent's provider. */
  @ApiProperty({ example: 'shell' })
  provider!: string;

  /** Seconds of wall clock for a turn. */
  @Integer({ minimum: 1, example: 3600 })
  timeout!: number;

  @ApiProperty({ type: [SessionResource] })
  resources!: SessionResource[];

  /** Turns ever queued. */
  @Integer({ minimum: 1, example: 1 })
  turn_count!: number;

  /** The number of the latest turn. */
  @Integer({ minimum: 1, example: 1 })
  current_turn!: number;

  /** Where to read the session's events: a path, or an absolute address where the service knows its own. */
  @ApiProperty({ example: STREAM_URL })
  stream_url!: string;

  /** Of the latest turn's runtime; `null` until it exits, and where it did not. */
  @Integer({ nullable: true, example: 0 })
  exit_code!: number | null;

  /** Why the latest turn ended without an exit code. */
  @ApiProperty({ type: String, nullable: true, example: null })
  error!: string | null;

  @Timestamp()
  created_at!: string;

  @Timestamp()
  updated_at!: string;
}

/** A list of sessions. */
@ApiSchema({ name: 'SessionList', description: 'All of them: there are no pages.' })
export class SessionList {
  data!: SessionObject[];
}

/** One prompt and what became of it. */
@ApiSchema({ name: 'Turn', description: 'One prompt and what became of it.' })
export class TurnObject {
  @Uuid({ example: '5b2a8a35-0e0f-4b6f-8a3c-6a9d4c1de0a7' })
  id!: string;

  @Uuid()
  session_id!: string;

  /** From 1 on. */
  @Integer({ minimum: 1, example: 1 })
  turn_number!: number;

  /** As it was submitted; the system prompt is not part of it. */
  @ApiProperty({ example: 'echo hello' })
  prompt!: string;

  @ApiProperty({ ...STATUS_SCHEMA, example: 'completed' })
  status!: SessionStatus;

  /** Of the runtime; `null` until it exits, and where it did not. */
  @Integer({ nullable: true, example: 0 })
  exit_code!: number | null;

  /** Why the turn ended without an exit code. */
  @ApiProperty({ type: String, nullable: true, example: null })
  error!: string | null;

  @Timestamp()
  created_at!: string;

  /** `null` until a worker takes the turn. */
  @Timestamp({ nullable: true })
  started_at!: string | null;

  /** `null` until the turn has ended. */
  @Timestamp({ nullable: true })
  ended_at!: string | null;
}

/** A list of turns. */
@ApiSchema({ name: 'TurnList', description: 'All of them, by `turn_number`.' })
export class TurnList {
  data!: TurnObject[];
}
