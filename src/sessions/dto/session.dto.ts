import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { PageResponse } from '../../common/openapi/error-responses.dto.js';
import { Integer, OneOf, Timestamp, Uuid } from '../../common/openapi/decorators.js';
import { SESSION_STATUSES, type SessionStatus } from '../session-transitions.js';
import { UsageObject } from '../../usage/dto/usage.dto.js';
import {
  type BranchCheckout,
  BudgetDto,
  CheckoutDto,
  type CommitCheckout,
} from './create-session.dto.js';

const AGENT_ID = '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10';

/** Example request bodies for the OpenAPI document. */
export const CREATE_SESSION_EXAMPLES = {
  'A prompt': { agent_id: AGENT_ID, prompt: 'echo hello' },
  'A repository, and another environment than the agent has': {
    agent_id: AGENT_ID,
    prompt: 'Fix the failing test.',
    timeout: 1800,
    environment_id: '5b2a8a35-0e0f-4b6f-8a3c-6a9d4c1de0a7',
    resources: [
      {
        type: 'git_repository',
        url: 'https://git.example.com/team/app.git',
        authorization_token: 'secret',
        checkout: { type: 'branch', name: 'main' },
      },
    ],
  },
};

export const PROMPT_SESSION_EXAMPLES = {
  'The next turn': { prompt: 'echo and hello again' },
};

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

  /** Absent if the default branch was cloned. */
  @ApiProperty({ type: CheckoutDto })
  checkout?: BranchCheckout | CommitCheckout;
}

@ApiSchema({ name: 'UploadedFile', description: 'A file that a session was given.' })
export class UploadedFileObject {
  @ApiProperty({ enum: ['file'] })
  type!: 'file';

  /**
   * Below the workspace.
   * @example "data/input.csv"
   */
  path!: string;

  /** Bytes. */
  @Integer({ minimum: 0, example: 1024 })
  size!: number;
}

@ApiSchema({ name: 'Resource', description: 'What the workspace of a session began with.' })
@OneOf(() => ({ git_repository: SessionResource, file: UploadedFileObject }))
export class ResourceObject {}

/** The answer to creating or prompting a session. */
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

  @ApiProperty({ type: [ResourceObject] })
  resources!: (SessionResource | UploadedFileObject)[];

  /** Turns ever queued. */
  @Integer({ minimum: 1, example: 1 })
  turn_count!: number;

  /** The number of the latest turn. */
  @Integer({ minimum: 1, example: 1 })
  current_turn!: number;

  /** Where to read the session's events: a path, or an absolute address where the service knows its own. */
  @ApiProperty({ example: STREAM_URL })
  stream_url!: string;

  /** The exit code of the latest turn's runtime. `null` until it exits, and if it ended without one. */
  @Integer({ nullable: true, example: 0 })
  exit_code!: number | null;

  /** Why the latest turn ended without an exit code. */
  @ApiProperty({ type: String, nullable: true, example: null })
  error!: string | null;

  /**
   * What the latest turn waits for, or the current step of provisioning, as one sentence for people. `null` when nothing
   * is pending. In lists also while no worker has taken the turn.
   */
  @ApiProperty({ type: String, nullable: true, example: null })
  progress!: string | null;

  /** What the session may use; `null` where it was created without a budget. */
  @ApiProperty({ type: BudgetDto, nullable: true, example: null })
  budget!: BudgetDto | null;

  /** Of all its turns. */
  @ApiProperty({ type: UsageObject })
  usage!: UsageObject;

  @Timestamp()
  created_at!: string;

  @Timestamp()
  updated_at!: string;
}

/** A list of sessions. */
@ApiSchema({ name: 'SessionList', description: 'All items, or as many as requested.' })
export class SessionList extends PageResponse {
  data!: SessionObject[];
}

/** A turn: one prompt and its outcome. */
@ApiSchema({ name: 'Turn', description: 'A turn: one prompt and its outcome.' })
export class TurnObject {
  @Uuid({ example: '5b2a8a35-0e0f-4b6f-8a3c-6a9d4c1de0a7' })
  id!: string;

  @Uuid()
  session_id!: string;

  /** From 1 on. */
  @Integer({ minimum: 1, example: 1 })
  turn_number!: number;

  /** The prompt as it was submitted, without the system prompt. */
  @ApiProperty({ example: 'echo hello' })
  prompt!: string;

  /** Seconds of wall clock that the turn may take. */
  @Integer({ minimum: 1, example: 3600 })
  timeout!: number;

  @ApiProperty({ ...STATUS_SCHEMA, example: 'completed' })
  status!: SessionStatus;

  /** The exit code of the runtime. `null` until it exits, and if it ended without one. */
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

  @ApiProperty({ type: UsageObject })
  usage!: UsageObject;
}

/** A list of turns. */
@ApiSchema({
  name: 'TurnList',
  description: 'All items, or as many as requested, by `turn_number`.',
})
export class TurnList extends PageResponse {
  data!: TurnObject[];
}
