import { IsInt, IsString, IsUUID, MaxLength, MinLength } from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validators.js';
import { Items } from '../../common/validation/dto.js';
import { StringMap } from '../../common/validation/maps.js';
import { Unique } from '../../common/validation/unique.js';
import { McpServerDto, mcpServerDtoOf } from './mcp-server.dto.js';
import { SkillDto, skillDtoOf } from './skill.dto.js';

/** How many labels an agent may have; also after a merge. */
export const MAX_METADATA_KEYS = 64;

/** What `POST` and `PUT /agents` have in common and may leave out. */
class AgentOptionsDto {
  /** Stands before the first prompt. At most 1,048,576 characters. */
  @IfPresent()
  @MaxLength(1_048_576)
  @IsString()
  system?: string;

  /** At most 64. */
  @IfPresent()
  @Items(skillDtoOf, 64)
  @Unique('name')
  skills?: SkillDto[];

  /** At most 64, with names that differ. The list replaces the whole one, secrets included. */
  @IfPresent()
  @Items(mcpServerDtoOf, 64)
  @Unique('name')
  mcp_servers?: McpServerDto[];

  /** The default environment of sessions; one of the user's own. `null` for none. */
  @IfPresentAndNotNull()
  @IsUUID()
  environment_id?: string | null;

  /** At most 64 labels: names of at most 128, values of at most 4,096 characters. An empty value deletes a label. */
  @IfPresent()
  @StringMap({ maxSize: MAX_METADATA_KEYS, maxKeyLength: 128, maxValueLength: 4_096 })
  metadata?: Record<string, string>;
}

/** Body of `POST /agents`. */
export class CreateAgentDto extends AgentOptionsDto {
  /** 1 to 255 characters. */
  @MaxLength(255)
  @MinLength(1)
  @IsString()
  name!: string;

  /** `anthropic`, `openai`, `google`, `opencode`, `shell`, or one of their aliases. */
  @MaxLength(64)
  @IsString()
  provider!: string;

  /** One of the provider's. At most 255 characters. */
  @MaxLength(255)
  @IsString()
  model!: string;
}

/** Body of `PUT /agents/{id}`. What is left out stays as it is. */
export class UpdateAgentDto extends AgentOptionsDto {
  /** The version that the change starts from. */
  @IsInt()
  version!: number;

  /** 1 to 255 characters. */
  @IfPresent()
  @MaxLength(255)
  @MinLength(1)
  @IsString()
  name?: string;

  @IfPresent()
  @MaxLength(64)
  @IsString()
  provider?: string;

  /** Must be one of the provider's. At most 255 characters. */
  @IfPresent()
  @MaxLength(255)
  @IsString()
  model?: string;
}
