import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { IsIn, IsString, Matches, MaxLength, MinLength } from 'class-validator';
import type { ValidationItem } from '../../common/errors.js';
import { asGitUrl } from '../../common/http-url.js';
import { IfPresent } from '../../common/http/validation.pipe.js';
import { OneOf } from '../../common/openapi/decorators.js';
import { Items, Located, problem, HttpUrl } from '../../common/validation/dto.js';
import type { Skill } from '../../runtimes/agent-runtime.js';
import { skillFolder } from '../../runtimes/runtime-support.js';

const TYPES = ['inline', 'git'] as const;
/** No segment is empty, `.` or `..`, and there are no backslashes or control characters. */
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
@OneOf(() => [InlineSkillDto, GitSkillDto])
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

  /** No two may have the same path, or one lie below another. */
  @IfPresent()
  @Items(() => SkillFileDto, 128)
  @Located(filesProblems)
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

/** A file cannot be a folder as well: `x` and `x/y`, or something below `SKILL.md`. */
function filesProblems(files: unknown): ValidationItem[] {
  const paths = textsOf(files, ({ path }) => path);
  return paths.flatMap((path, index) => {
    if (path === undefined) return [];
    const others = ['SKILL.md', ...paths.filter((_other, at) => at !== index)];
    if (paths.indexOf(path) < index) {
      return [problem('duplicate', 'Must be unique in the list', [index, 'path'])];
    }
    return others.some((other) => other !== undefined && path.startsWith(`${other}/`))
      ? [problem('path_conflict', 'Lies below another file of the skill', [index, 'path'])]
      : [];
  });
}

/** Checks that no two skills use the same folder. A git skill is named after its folder or repository. */
export function skillsProblems(skills: unknown): ValidationItem[] {
  const folders = textsOf(skills, (skill) => {
    if (skill.type !== 'git')
      return isText(skill.name) ? skillFolder({ name: skill.name }) : undefined;
    const path = isText(skill.path) ? skill.path : undefined;
    return isText(skill.url) ? skillFolder({ url: skill.url, path }) : undefined;
  });
  return folders.flatMap((folder, index) => {
    if (folder === undefined || folders.indexOf(folder) === index) return [];
    const isGit = (skills as { type?: unknown }[])[index]?.type === 'git';
    return [problem('duplicate', 'Two skills have this name', [index, isGit ? 'url' : 'name'])];
  });
}

const isText = (value: unknown): value is string => typeof value === 'string';

/** One text for each item of a list. Skips items that are no objects, which another check reports. */
function textsOf(
  list: unknown,
  text: (item: Record<string, unknown>) => unknown,
): (string | undefined)[] {
  return (Array.isArray(list) ? list : []).map((item: unknown) => {
    const found = typeof item === 'object' && item !== null ? text({ ...item }) : undefined;
    return isText(found) ? found : undefined;
  });
}

/** The class that validates an item of `skills`. */
export function skillDtoOf(item: Readonly<Record<string, unknown>>): typeof SkillDto {
  if (item.type === undefined || item.type === 'inline') return InlineSkillDto;
  return item.type === 'git' ? GitSkillDto : SkillDto;
}

/** Converts a validated item to the form that is stored and shown. */
export function readSkill(dto: SkillDto): Skill {
  if (dto instanceof GitSkillDto) {
    const { url, ref, path } = dto;
    return {
      type: 'git',
      url: asGitUrl(url),
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
