import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import {
  IsIn,
  IsInt,
  IsNotEmpty,
  IsNumber,
  IsPositive,
  IsString,
  Max,
  MaxLength,
  Min,
  ValidateIf,
} from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validation.pipe.js';
import { OneOf, Integer } from '../../common/openapi/decorators.js';
import { Item, Items, Id } from '../../common/validation/dto.js';

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
const MAX_BUDGET_TOKENS = 10 ** 15;
const MAX_BUDGET_USD = 10 ** 9;

/** The branch or commit of a repository to check out. Default: the default branch. */
@ApiSchema({
  name: 'Checkout',
  description: 'The branch or commit of a repository to check out. Default: the default branch.',
})
@OneOf(() => ({ branch: BranchCheckout, commit: CommitCheckout }))
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

/** What a session's workspace begins with. */
@ApiSchema({
  name: 'ResourceInput',
  description: 'What the workspace begins with: a git repository that is cloned, or a file.',
})
@OneOf(() => [GitRepositoryDto, FileResourceDto])
export class ResourceDto {
  @IsIn(['git_repository', 'github_repository', 'repo', 'file'])
  type!: 'git_repository' | 'github_repository' | 'repo' | 'file';
}

/** A repository that is cloned into the workspace before the first turn. */
@ApiSchema({
  name: 'GitRepositoryInput',
  description: 'A git repository that is cloned into the workspace before the first turn.',
})
export class GitRepositoryDto extends ResourceDto {
  /** All three mean the same. Responses have `git_repository`. */
  @ApiProperty({ enum: ['git_repository', 'github_repository', 'repo'] })
  override type!: 'git_repository' | 'github_repository' | 'repo';

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
   * Where to clone it: a path below the workspace, or an absolute path that begins with `/workspace/`. No repository
   * may be inside another one. Default: the repository's name.
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

/** What a session may use. */
@ApiSchema({
  name: 'Budget',
  description:
    'What a session may use, all its turns together. Its requests to models are refused when a limit is reached.',
})
export class BudgetDto {
  /** Tokens of all kinds, cached ones included. */
  @ApiProperty({ type: 'integer', format: 'int64', minimum: 1, example: 1_000_000 })
  @IfPresent()
  @IsInt()
  @Min(1)
  @Max(MAX_BUDGET_TOKENS)
  tokens?: number;

  /** More than 0, by the price list of the service. */
  @ApiProperty({ type: Number, example: 2.5 })
  @IfPresent()
  @IsNumber()
  @IsPositive()
  @Max(MAX_BUDGET_USD)
  usd?: number;
}

/** A file that is written to the workspace before the first turn. */
@ApiSchema({
  name: 'FileInput',
  description:
    'A file that is written to the workspace after the repositories are cloned and the setup script has run.',
})
export class FileResourceDto extends ResourceDto {
  @ApiProperty({ enum: ['file'] })
  override type!: 'file';

  /**
   * A path below the workspace, or an absolute path that begins with `/workspace/`.
   * @example "data/input.csv"
   */
  @IsString()
  @MaxLength(1024)
  path!: string;

  /** The content as text. Needed unless there is `content_base64`. */
  @IfPresentAndNotNull()
  @IsString()
  content?: string | null;

  /** The content as bytes in base64. Needed unless there is `content`. */
  @IfPresentAndNotNull()
  @IsString()
  content_base64?: string | null;
}

/** The class of a resource by its type. */
function resourceDtoOf(item: Readonly<Record<string, unknown>>): typeof ResourceDto {
  return item['type'] === 'file' ? FileResourceDto : GitRepositoryDto;
}

/** A new session. */
@ApiSchema({ name: 'CreateSessionRequest', description: 'A new session.' })
export class CreateSessionDto {
  /** The agent to run, in its current version. */
  @Id()
  agent_id!: string;

  /**
   * The first turn's prompt. May be left out only if the agent has a system prompt.
   * @example "echo hello from $(hostname)"
   */
  @IfPresent()
  @IsString()
  prompt?: string;

  /**
   * Seconds of wall-clock time for a turn, including provisioning. Also the default for further turns. Default 3600.
   */
  @Integer()
  @IfPresent()
  @IsInt()
  @Min(MIN_TIMEOUT)
  @Max(MAX_TIMEOUT)
  timeout?: number;

  /** Default: the agent's default environment. `null`: no environment. */
  @IfPresentAndNotNull()
  @Id({ nullable: true })
  environment_id?: string | null;

  /** Repositories to clone and files to write. Default `[]`. */
  @IfPresent()
  @Items(resourceDtoOf, 32)
  resources?: ResourceDto[];

  /** Default: no budget of its own. */
  @IfPresentAndNotNull()
  @Item(() => BudgetDto)
  budget?: BudgetDto | null;
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
