import {
  IsIn,
  IsInt,
  IsNotEmpty,
  IsString,
  Max,
  MaxLength,
  Min,
  ValidateIf,
} from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validators.js';
import { Item, Items } from '../../common/validation/dto.js';

export const MIN_TIMEOUT = 1;
export const MAX_TIMEOUT = 86_400;
export const DEFAULT_TIMEOUT = 3_600;

/** What of a repository to check out; without it, the default branch. */
export class CheckoutDto {
  @IsIn(['branch', 'commit'])
  type!: 'branch' | 'commit';

  /** The branch; for `type` `branch`. */
  @ValidateIf((checkout: CheckoutDto) => checkout.type === 'branch')
  @IsString()
  @MaxLength(255)
  name?: string;

  /** The commit; for `type` `commit`. */
  @ValidateIf((checkout: CheckoutDto) => checkout.type === 'commit')
  @IsString()
  sha?: string;
}

/** A repository that is cloned into the workspace before the first turn. */
export class GitRepositoryDto {
  /** The aliases mean the same. */
  @IsIn(['git_repository', 'github_repository', 'repo'])
  type!: 'git_repository' | 'github_repository' | 'repo';

  /**
   * `https://` or `http://`, without credentials.
   * @example "https://git.example.com/team/app.git"
   */
  @IsString()
  @MaxLength(2048)
  url!: string;

  /** Write-only: used to clone, fetch and push, and never shown again. */
  @IfPresentAndNotNull()
  @IsString()
  @IsNotEmpty()
  @MaxLength(4096)
  authorization_token?: string | null;

  /** Where to, below the workspace. Default: the repository's name. */
  @IfPresentAndNotNull()
  @IsString()
  @MaxLength(1024)
  mount_path?: string | null;

  @IfPresentAndNotNull()
  @Item(() => CheckoutDto)
  checkout?: CheckoutDto | null;
}

/** A new session. */
export class CreateSessionDto {
  /** The agent to run, in its current version. */
  @IsString()
  agent_id!: string;

  /** The first turn's prompt. May be left out only if the agent has a system prompt. */
  @IfPresent()
  @IsString()
  prompt?: string;

  /** Seconds of wall clock for a turn, provisioning included. */
  @IfPresent()
  @IsInt()
  @Min(MIN_TIMEOUT)
  @Max(MAX_TIMEOUT)
  timeout?: number;

  /** Left out: the agent's default environment. `null`: none. */
  @IfPresentAndNotNull()
  @IsString()
  environment_id?: string | null;

  @IfPresent()
  @Items(() => GitRepositoryDto, 32)
  resources?: GitRepositoryDto[];
}

/** A further turn of a completed session. */
export class PromptSessionDto {
  @IsString()
  @IsNotEmpty()
  prompt!: string;

  /** Seconds of wall clock for this turn. Default: the session's. */
  @IfPresent()
  @IsInt()
  @Min(MIN_TIMEOUT)
  @Max(MAX_TIMEOUT)
  timeout?: number;
}
