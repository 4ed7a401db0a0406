import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { IsIn, IsString, Matches, MaxLength, MinLength } from 'class-validator';
import { IfPresent } from '../../common/http/validators.js';
import { OneOf } from '../../common/openapi/one-of.decorator.js';
import { Items } from '../../common/validation/dto.js';
import { HttpUrl } from '../../common/validation/http-url.decorator.js';
import type { Skill } from '../../runtimes/agent-runtime.js';
import { Unique } from '../../common/validation/unique.js';

const TYPES = ['inline', 'git'] as const;
/** Segments that are neither empty nor a step up; no backslash, no control character. */
const RELATIVE_PATH = /^(?!\.{0,2}(?:\/|$))(?!.*\/(?:\.{0,2})(?:\/|$))[^\\\p{Cc}]+$/u;
const PATH_MESSAGE = 'Must be a relative path without "." or ".." in it';
const MAX_CONTENT = 1_048_576;

/** A file that lies beside a SKILL.md. */
@ApiSchema({ name: 'SkillFile', description: 'A file that lies beside a SKILL.md.' })
export class SkillFileDto {
  /**
   * Relative to the skill's folder, without `.` or `..`; not `SKILL.md`.
   * @example "templates/notes.md"
   */
  @Matches(/^(?!SKILL\.md$)/i, { message: 'SKILL.md is what "content" holds' })
  @Matches(RELATIVE_PATH, { message: PATH_MESSAGE })
  @MaxLength(1_024)
  @IsString()
  path!: string;

  @MaxLength(MAX_CONTENT)
  @IsString()
  content!: string;
}

/** A skill: an inline SKILL.md, or with `type` `git` a folder in a repository. */
@ApiSchema({
  name: 'Skill',
  description:
    'Extra knowledge: an inline SKILL.md, or with `type` `git` a folder in a repository.',
})
@OneOf({ members: () => [InlineSkillDto, GitSkillDto] })
export class SkillDto {
  @IfPresent()
  @IsIn(TYPES)
  type?: (typeof TYPES)[number];
}

/** A SKILL.md, and what lies beside it. */
@ApiSchema({ name: 'InlineSkill', description: 'A SKILL.md, and what lies beside it.' })
export class InlineSkillDto extends SkillDto {
  /** May be left out; responses leave it out. */
  @ApiProperty({ enum: ['inline'], required: false })
  override type?: 'inline';

  /**
   * Unique within the agent; the name of its folder.
   * @example "release-notes"
   */
  @Matches(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, {
    message: 'A name has only letters, digits, dots, hyphens and underscores',
  })
  @MaxLength(64)
  @MinLength(1)
  @IsString()
  name!: string;

  @IfPresent()
  @MaxLength(4_096)
  @IsString()
  description?: string;

  /**
   * The text of SKILL.md.
   * @example "# Release notes"
   */
  @MaxLength(MAX_CONTENT)
  @IsString()
  content!: string;

  @IfPresent()
  @Items(() => SkillFileDto, 128)
  @Unique('path')
  files?: SkillFileDto[];
}

/** A skill that lies in a git repository. */
@ApiSchema({ name: 'GitSkill', description: 'A skill that lies in a git repository.' })
export class GitSkillDto extends SkillDto {
  @ApiProperty({ enum: ['git'], required: true })
  override type!: 'git';

  /** `http` or `https`, without user and password. */
  @HttpUrl()
  url!: string;

  /** A branch, a tag or a commit; the default branch when left out. */
  @IfPresent()
  @Matches(/^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/+@-]*$/, { message: 'Not the name of a git ref' })
  @MaxLength(255)
  @IsString()
  ref?: string;

  /** The folder in the repository that holds SKILL.md; its root when left out. */
  @IfPresent()
  @Matches(RELATIVE_PATH, { message: PATH_MESSAGE })
  @MaxLength(1_024)
  @IsString()
  path?: string;
}

/** Which class an item of `skills` is validated as. */
export function skillDtoOf(item: Readonly<Record<string, unknown>>): typeof SkillDto {
  if (item.type === undefined || item.type === 'inline') return InlineSkillDto;
  return item.type === 'git' ? GitSkillDto : SkillDto;
}

/** A validated item → what is stored and shown. */
export function readSkill(dto: SkillDto): Skill {
  if (dto instanceof GitSkillDto) {
    const { url, ref, path } = dto;
    return {
      type: 'git',
      url,
      ...(ref !== undefined && { ref }),
      ...(path !== undefined && { path }),
    };
  }
  const { name, description, content, files } = dto as InlineSkillDto;
  return {
    name,
    ...(description !== undefined && { description }),
    content,
    ...(files && { files: files.map((file) => ({ path: file.path, content: file.content })) }),
  };
}
