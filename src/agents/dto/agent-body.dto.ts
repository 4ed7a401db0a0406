import { ApiSchema } from '@nestjs/swagger';
import { IsInt, IsString, IsUUID, MaxLength, MinLength } from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validators.js';
import { Integer } from '../../common/openapi/properties.js';
import { Items } from '../../common/validation/dto.js';
import { StringMap } from '../../common/validation/maps.js';
import { Unique } from '../../common/validation/unique.js';
import { McpServerDto, mcpServerDtoOf } from './mcp-server.dto.js';
import { SkillDto, skillDtoOf } from './skill.dto.js';

/** How many labels an agent may have; also after a merge. */
export const MAX_METADATA_KEYS = 64;

/** What `POST` and `PUT /agents` have in common and may leave out. */
class AgentOptionsDto {
  /** The system prompt: stands before the first turn's prompt. Default `""`. */
  @IfPresent()
  @MaxLength(1_048_576)
  @IsString()
  system?: string;

  /** Extra knowledge. A list replaces the whole one. Default `[]`. */
  @IfPresent()
  @Items(skillDtoOf, 64)
  @Unique('name')
  skills?: SkillDto[];

  /** Tool servers, with names that differ. A list replaces the whole one, secrets included. Default `[]`. */
  @IfPresent()
  @Items(mcpServerDtoOf, 64)
  @Unique('name')
  mcp_servers?: McpServerDto[];

  /** The default environment of sessions; one of the user's own. `null` for none. */
  @IfPresentAndNotNull()
  @IsUUID()
  environment_id?: string | null;

  /**
   * Labels, at most 64 also after a merge, with names of at most 128 characters. On `PUT` they are merged: a text adds or
   * replaces a label, an empty text deletes it, what is not there stays.
   */
  @IfPresent()
  @StringMap({ maxSize: MAX_METADATA_KEYS, maxKeyLength: 128, maxValueLength: 4_096 })
  metadata?: Record<string, string>;
}

/** Body of `POST /agents`. */
@ApiSchema({ name: 'CreateAgentRequest', description: 'A new agent.' })
export class CreateAgentDto extends AgentOptionsDto {
  /** @example "Greeter" */
  @MaxLength(255)
  @MinLength(1)
  @IsString()
  name!: string;

  /**
   * Who runs the turns: `anthropic` (or `claude`), `openai` (or `codex`), `google` (or `gemini`), `opencode`, or `shell`,
   * which runs prompts as bash scripts. An unknown one is a 400; which are installed differs from service to service.
   * @example "shell"
   */
  @MaxLength(64)
  @IsString()
  provider!: string;

  /**
   * One of the provider's: it begins with one of the provider's prefixes, or with its name and a slash.
   * @example "shell/bash"
   */
  @MaxLength(255)
  @IsString()
  model!: string;
}

/** Body of `PUT /agents/{id}`. What is left out stays as it is. */
@ApiSchema({
  name: 'UpdateAgentRequest',
  description: 'A change of an agent. What is left out stays as it is.',
})
export class UpdateAgentDto extends AgentOptionsDto {
  /** The version that the change starts from. */
  @Integer({ example: 1 })
  @IsInt()
  version!: number;

  @IfPresent()
  @MaxLength(255)
  @MinLength(1)
  @IsString()
  name?: string;

  @IfPresent()
  @MaxLength(64)
  @IsString()
  provider?: string;

  /** Must be one of the provider's. */
  @IfPresent()
  @MaxLength(255)
  @IsString()
  model?: string;
}
