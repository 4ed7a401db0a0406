import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { IsInt, IsString, Max, MaxLength, Min } from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validation.pipe.js';
import { Integer, Timestamp, Uuid } from '../../common/openapi/decorators.js';
import { SANDBOX_STATES, type SandboxState } from '../../sandboxes/lifecycle/sandbox-states.js';

const MAX_NAME = 255;
const MAX_SESSION_LIMIT = 1_000_000;
const MAX_DAYS = 36_500;

/** A process that runs turns. */
@ApiSchema({ name: 'Worker', description: 'A process that runs turns.' })
export class WorkerObject {
  id!: string;
  /** @example "docker" */
  driver!: string;

  /** Where its sandboxes are, if only workers there can reach them. */
  @ApiProperty({ type: String, nullable: true })
  host!: string | null;

  /** Whether it was seen in the last minute and has not stopped. */
  alive!: boolean;

  /** Why it cannot make sandboxes; `null` if it can. */
  @ApiProperty({ type: String, nullable: true })
  problem!: string | null;

  /** How many turns it runs at a time; 0 once it has stopped, `null` if that is unknown. */
  @Integer({ nullable: true, minimum: 0, example: 16 })
  slots!: number | null;

  /** How many turns it runs now. */
  @Integer({ minimum: 0, example: 3 })
  running!: number;

  @Timestamp()
  started_at!: string;

  /** Its last heartbeat. */
  @Timestamp()
  seen_at!: string;
}

/** A session whose turn no worker has yet. */
@ApiSchema({ name: 'WaitingSession', description: 'A session whose turn no worker has yet.' })
export class WaitingObject {
  /** The id of the session. */
  @Uuid()
  id!: string;

  /** The name of its user. */
  user!: string;
  /** @example "anthropic" */
  provider!: string;

  @Integer({ minimum: 1, example: 1 })
  turn!: number;

  @Timestamp()
  waiting_since!: string;

  /**
   * What it waits for, in one sentence; `null` if a worker has taken it meanwhile.
   * @example "Waiting for a worker: number 3 in the queue"
   */
  @ApiProperty({ type: String, nullable: true })
  progress!: string | null;
}

/** A sandbox on record. */
@ApiSchema({ name: 'Sandbox', description: 'A sandbox on record, of any host.' })
export class SandboxObject {
  @Uuid()
  id!: string;

  /** `warming` and `ready` belong to no session yet, `deleting` is being destroyed. */
  @ApiProperty({ enum: SANDBOX_STATES, enumName: 'SandboxState' })
  state!: SandboxState;

  @Timestamp()
  state_since!: string;

  @Uuid({ nullable: true })
  session_id!: string | null;

  /** The name of the session's user. */
  @ApiProperty({ type: String, nullable: true })
  user!: string | null;

  /** @example "docker" */
  driver!: string;

  @ApiProperty({ type: String, nullable: true })
  host!: string | null;
}

/** A user of the service. */
@ApiSchema({ name: 'User', description: 'An owner of tokens and resources.' })
export class UserObject {
  @Uuid()
  id!: string;

  /** @example "alice" */
  name!: string;

  /** Whether the user's tokens open the routes for operators. Only the command line changes it. */
  operator!: boolean;

  /** Concurrent sessions; `null` follows `SESSION_LIMIT`. */
  @Integer({ nullable: true, minimum: 0, example: 20 })
  session_limit!: number | null;

  /** What the user's agents and environments take up, in bytes. */
  @ApiProperty({ type: 'integer', format: 'int64', minimum: 0, example: 20_480 })
  stored_bytes!: number;

  @Timestamp()
  created_at!: string;
}

/** A token without its secret. */
@ApiSchema({ name: 'AccessToken', description: 'An access token without its secret.' })
export class TokenObject {
  @Uuid()
  id!: string;

  /** The name of its user. */
  user!: string;

  /**
   * What it is for.
   * @example "laptop"
   */
  name!: string;

  @Timestamp()
  created_at!: string;

  @Timestamp({ nullable: true })
  last_used_at!: string | null;

  /** `null` for a token that does not expire. */
  @Timestamp({ nullable: true })
  expires_at!: string | null;

  @Timestamp({ nullable: true })
  revoked_at!: string | null;
}

/** A new token. Its secret is never shown again. */
@ApiSchema({
  name: 'IssuedToken',
  description: 'A new access token. Its secret is never shown again.',
})
export class IssuedTokenObject {
  @Uuid()
  id!: string;

  /** The token itself. Only its hash is stored. */
  token!: string;

  user!: string;
  name!: string;

  @Timestamp({ nullable: true })
  expires_at!: string | null;
}

/** Part of a list. */
class OperatorPage {
  /** Is there more than `limit`? */
  has_more!: boolean;
}

@ApiSchema({ name: 'WorkerList', description: 'Those that are alive first.' })
export class WorkerList extends OperatorPage {
  data!: WorkerObject[];
}

@ApiSchema({ name: 'WaitingSessionList', description: 'The longest waiting one first.' })
export class WaitingList extends OperatorPage {
  data!: WaitingObject[];
}

@ApiSchema({ name: 'SandboxList', description: 'Newest first.' })
export class SandboxList extends OperatorPage {
  data!: SandboxObject[];
}

@ApiSchema({ name: 'UserList', description: 'Oldest first.' })
export class UserList extends OperatorPage {
  data!: UserObject[];
}

@ApiSchema({ name: 'AccessTokenList', description: 'Newest first, with those that have ended.' })
export class TokenList extends OperatorPage {
  data!: TokenObject[];
}

/** Example request bodies for the OpenAPI document. */
export const CREATE_USER_EXAMPLES = { 'A user': { name: 'alice', session_limit: 20 } };
export const CREATE_TOKEN_EXAMPLES = {
  'A token for 90 days': { name: 'laptop', expires_in_days: 90 },
};

/** A new user. */
@ApiSchema({ name: 'UserInput', description: 'A new user, who is no operator.' })
export class CreateUserDto {
  /**
   * Unique.
   * @example "alice"
   */
  @IsString()
  @MaxLength(MAX_NAME)
  name!: string;

  /** Concurrent sessions. Default: `SESSION_LIMIT`. */
  @Integer({ nullable: true, required: false, minimum: 0, example: 20 })
  @IfPresentAndNotNull()
  @IsInt()
  @Min(0)
  @Max(MAX_SESSION_LIMIT)
  session_limit?: number | null;
}

/** A new token. */
@ApiSchema({ name: 'AccessTokenInput', description: 'A new access token.' })
export class CreateTokenDto {
  /**
   * What it is for.
   * @example "laptop"
   */
  @IfPresent()
  @IsString()
  @MaxLength(MAX_NAME)
  name?: string;

  /** Default: it does not expire. */
  @Integer({ nullable: true, required: false, minimum: 1, example: 90 })
  @IfPresentAndNotNull()
  @IsInt()
  @Min(1)
  @Max(MAX_DAYS)
  expires_in_days?: number | null;
}
