import { ApiProperty, ApiSchema } from '@nestjs/swagger';
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
import { OneOf } from '../../common/openapi/one-of.decorator.js';
import { Integer, Uuid } from '../../common/openapi/properties.js';
import { Item, Items } from '../../common/validation/dto.js';

/** A branch to check out. */
@ApiSchema({ name: 'BranchCheckout', description: 'A branch to check out.' })
export class BranchCheckout {
  type!: 'branch';
  /** @example "main" */
  @ApiProperty({ maxLength: 255 })
  name!: string;
}

/** A commit to check out. */
@ApiSchema({ name: 'CommitCheckout', description: 'A commit to check out.' })
export class CommitCheckout {
  type!: 'commit';
  /** @example "9b1c0de5a2f34c7788d1e0a5b6c7d8e9f0a1b2c3" */
  @ApiProperty({ pattern: '^[0-9a-fA-F]{7,64}$' })
  sha!: string;
}

export const MIN_TIMEOUT = 1;
export const MAX_TIMEOUT = 86_400;
export const DEFAULT_TIMEOUT = 3_600;

/** What of a repository to check out; without it, the default branch. */
@ApiSchema({
  name: 'Checkout',
  description: 'What of a repository to check out; without it, the default branch.',
})
@OneOf({
  members: () => [BranchCheckout, CommitCheckout],
  discriminator: {
    propertyName: 'type',
    mapping: () => ({ branch: BranchCheckout, commit: CommitCheckout }),
  },
})
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
@ApiSchema({
  name: 'GitRepositoryInput',
  description: 'A git repository that is cloned into the workspace before the first turn.',
})
export class GitRepositoryDto {
  /** The aliases mean the same; `git_repository` is what is read back. */
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

  /**
   * Where to: a path below the workspace, or an absolute one that begins with `/workspace/`. Two repositories cannot lie in
   * one another. Default: the repository's name.
   * @example "app"
   */
  @IfPresentAndNotNull()
  @IsString()
  @MaxLength(1024)
  mount_path?: string | null;

  @IfPresentAndNotNull()
  @Item(() => CheckoutDto)
  checkout?: CheckoutDto | null;
}

/** A new session. */
@ApiSchema({ name: 'CreateSessionRequest', description: 'A new session.' })
export class CreateSessionDto {
  /** The agent to run, in its current version. */
  @Uuid()
  @IsString()
  agent_id!: string;

  /**
   * The first turn's prompt. May be left out only if the agent has a system prompt.
   * @example "echo hello from $(hostname)"
   */
  @IfPresent()
  @IsString()
  prompt?: string;

  /** Seconds of wall clock for a turn, provisioning included; further turns take it over. Default 3600. */
  @Integer()
  @IfPresent()
  @IsInt()
  @Min(MIN_TIMEOUT)
  @Max(MAX_TIMEOUT)
  timeout?: number;

  /** Left out: the agent's default environment. `null`: none. */
  @Uuid({ nullable: true })
  @IfPresentAndNotNull()
  @IsString()
  environment_id?: string | null;

  /** Repositories to clone. Default `[]`. */
  @IfPresent()
  @Items(() => GitRepositoryDto, 32)
  resources?: GitRepositoryDto[];
}

/** A further turn of a completed session. */
@ApiSchema({
  name: 'PromptSessionRequest',
  description: 'A further turn of a completed session.',
})
export class PromptSessionDto {
  /** @example "echo and hello again" */
  @ApiProperty({ minLength: 1 })
  @IsString()
  @IsNotEmpty()
  prompt!: string;

  /** Seconds of wall clock for this turn. Default: the session's. */
  @Integer()
  @IfPresent()
  @IsInt()
  @Min(MIN_TIMEOUT)
  @Max(MAX_TIMEOUT)
  timeout?: number;
}
