import { InvalidBody } from '../../common/errors.js';
import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { IsInt, IsString, MaxLength } from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validation.pipe.js';
import { OneOf, Integer, Timestamp, Uuid } from '../../common/openapi/decorators.js';
import { Item, Located } from '../../common/validation/dto.js';
import { StringMap } from '../../common/validation/maps.js';
import {
  PACKAGE_MANAGERS,
  MAX_PACKAGES,
  MAX_PACKAGE_TEXT,
  PACKAGE_NAME,
  PACKAGE_VERSION,
  packagesProblems,
} from '../packages.js';
import {
  NetworkingDto,
  networkingDtoOf,
  type Networking,
  NetworkingResponse,
} from './networking.dto.js';
import { PageResponse } from '../../common/openapi/error-responses.dto.js';
import { BUILD_STATUSES, type EnvironmentBuild } from '../environment-builds.js';
import type { EnvironmentSnapshot } from '../entities/environment.entity.js';

/**
 * Refuses variables that only the service sets.
 * @throws InvalidBody that names each of them. These names are the service's own, so the message repeats no submitted
 *   text.
 */
export function requireUnreserved(
  envVars: Readonly<Record<string, string>> | undefined,
  reserved: ReadonlySet<string>,
): void {
  const names = Object.keys(envVars ?? {}).filter((name) => reserved.has(name));
  if (names.length === 0) return;
  throw new InvalidBody(
    names.map((name) => ({
      type: 'reserved_name',
      loc: ['body', 'env_vars', name],
      msg: `${name} is set by the service; use another name`,
    })),
  );
}

/** Separates variables that may be exported from the names that only the service sets. */
export function withoutReserved(
  envVars: Readonly<Record<string, string>>,
  reserved: ReadonlySet<string>,
): { exported: Record<string, string>; dropped: string[] } {
  const entries = Object.entries(envVars);
  return {
    exported: Object.fromEntries(entries.filter(([name]) => !reserved.has(name))),
    dropped: entries.flatMap(([name]) => (reserved.has(name) ? [name] : [])),
  };
}

/** One package to install. */
@ApiSchema({ name: 'PackageSpec', description: 'One package to install.' })
export class PackageDto {
  @ApiProperty({ enum: PACKAGE_MANAGERS, enumName: 'PackageManager' })
  manager!: (typeof PACKAGE_MANAGERS)[number];
  /** As the manager knows it. */
  @ApiProperty({ maxLength: MAX_PACKAGE_TEXT, pattern: PACKAGE_NAME, example: 'typescript' })
  name!: string;
  /** The newest when left out. */
  @ApiProperty({ maxLength: MAX_PACKAGE_TEXT, pattern: PACKAGE_VERSION, example: '5.9.3' })
  version?: string;
}

/** One package to install, in either form. */
@ApiSchema({
  name: 'PackageInput',
  description: 'One package to install, as an object or in the short form.',
})
@OneOf(() => [
  PackageDto,
  {
    name: 'PackageShortForm',
    schema: {
      type: 'string',
      description: '`manager:name@version`; without a version the newest, without a manager apt.',
      examples: ['jq', 'npm:typescript', 'pip:requests@2.32.3'],
    },
  },
])
class PackageInput {}

/** Body of `POST /environments`. Nothing is required. */
@ApiSchema({
  name: 'CreateEnvironmentRequest',
  description: 'A new environment. Nothing is required.',
})
export class CreateEnvironmentDto {
  /**
   * For people. Default `null`.
   * @example "Node with jq"
   */
  @IfPresentAndNotNull()
  @MaxLength(255)
  @IsString()
  name?: string | null;

  /** Installed before `setup_script` runs. Default `[]`. */
  @ApiProperty({ type: [PackageInput], maxItems: MAX_PACKAGES })
  @IfPresent()
  @Located(packagesProblems)
  packages?: (PackageDto | string)[];

  /**
   * Variables to export in the sandbox: names of letters, digits and underscores with no digit first, 524,288 characters
   * in all. Write-only: responses have `env_var_keys`. On `PUT` they replace the whole set. Names that only the service
   * sets are refused with `reserved_name`: `HOME`, and those by which agent programs take keys, API addresses and their
   * configuration, such as `ANTHROPIC_BASE_URL`. Default `{}`.
   */
  @IfPresent()
  @StringMap({
    maxSize: 256,
    maxKeyLength: 255,
    maxValueLength: 65_536,
    maxTotalLength: 524_288,
    key: {
      pattern: /^[A-Za-z_][A-Za-z0-9_]*$/,
      msg: 'The name of a variable has only letters, digits and underscores, and no digit first',
    },
  })
  env_vars?: Record<string, string>;

  /**
   * Bash, run after the packages are installed. Default `""`.
   * @example "npm config set fund false"
   */
  @IfPresent()
  @MaxLength(1_048_576)
  @IsString()
  setup_script?: string;

  /** Default `{"type": "unrestricted"}`. */
  @IfPresent()
  @Item(networkingDtoOf)
  networking?: NetworkingDto;
}

/** Body of `PUT /environments/{id}`. Members that are left out stay as they are; others replace the whole value. */
@ApiSchema({
  name: 'UpdateEnvironmentRequest',
  description:
    'A change of an environment. Members that are left out stay as they are; others replace the whole value.',
})
export class UpdateEnvironmentDto extends CreateEnvironmentDto {
  /** The version that the change starts from. */
  @Integer({ example: 1 })
  @IsInt()
  version!: number;
}

/** Example request bodies for the OpenAPI document. */
export const CREATE_ENVIRONMENT_EXAMPLES = {
  'Nothing but the defaults': {},
  'Packages, a secret and an allow-list': {
    name: 'Node with jq',
    packages: ['jq', 'npm:typescript@5.9.3', { manager: 'pip', name: 'requests' }],
    env_vars: { API_TOKEN: 'secret' },
    setup_script: "git config --global user.name 'Session Agent'",
    networking: {
      type: 'limited',
      allowed_hosts: ['api.example.com', '*.example.org'],
      allow_package_managers: true,
    },
  },
};

export const UPDATE_ENVIRONMENT_EXAMPLES = {
  'Other variables: the whole set is replaced': { version: 1, env_vars: { API_TOKEN: 'changed' } },
};

/** One version of an environment, with its id and times as clients see them. */
export interface EnvironmentState extends EnvironmentSnapshot {
  id: string;
  version: number;
  createdAt: string;
  updatedAt: string;
  archivedAt: string | null;
}

/** An environment: what a sandbox is made of. */
@ApiSchema({ name: 'Environment', description: 'An environment: what a sandbox is made of.' })
export class EnvironmentResponse {
  @Uuid()
  id!: string;
  /** Always `environment`. */
  @ApiProperty()
  type!: 'environment';
  /** @example "Node with jq" */
  @ApiProperty()
  name!: string | null;
  /** In the object form. */
  @ApiProperty()
  packages!: PackageDto[];
  /**
   * The names of `env_vars`, sorted. Values are never returned.
   * @example ["API_TOKEN"]
   */
  @ApiProperty()
  env_var_keys!: string[];
  @ApiProperty()
  setup_script!: string;
  @ApiProperty({ type: NetworkingResponse })
  networking!: Networking;
  /** Starts at 1 and grows by one with each change. */
  @Integer({ minimum: 1, example: 1 })
  version!: number;
  /** ISO 8601, UTC, microseconds. In the list of versions: when the version was written. */
  @Timestamp()
  created_at!: string;
  /** When this version was written, or the environment was archived. */
  @Timestamp()
  updated_at!: string;
  /** `null` while the environment is active. */
  @Timestamp({ nullable: true })
  archived_at!: string | null;

  static of(state: EnvironmentState): EnvironmentResponse {
    return {
      id: state.id,
      type: 'environment',
      name: state.name,
      packages: state.packages,
      env_var_keys: state.envVarKeys,
      setup_script: state.setupScript,
      networking: state.networking,
      version: state.version,
      created_at: state.createdAt,
      updated_at: state.updatedAt,
      archived_at: state.archivedAt,
    };
  }
}

/** How the packages and the setup script of a version were installed last. */
@ApiSchema({
  name: 'EnvironmentBuild',
  description: 'How the packages and the setup script of a version were installed last.',
})
export class EnvironmentBuildResponse {
  /** `ready`: new sessions begin with the result where it was built. After `failed`, the next session builds again. */
  @ApiProperty({ enum: BUILD_STATUSES, enumName: 'EnvironmentBuildStatus' })
  status!: (typeof BUILD_STATUSES)[number];
  @Timestamp()
  started_at!: string;
  /** `null` while it goes on. */
  @Integer({ nullable: true, minimum: 0 })
  duration_ms!: number | null;
  /** After `failed`: the command that failed and the last lines of its output, else `null`. */
  @ApiProperty()
  error!: string | null;
}

/** An environment with its last build. */
@ApiSchema({ name: 'EnvironmentWithBuild', description: 'An environment with its last build.' })
export class EnvironmentWithBuildResponse extends EnvironmentResponse {
  /** Of the current version. `null` if there was none: the first session builds it, or takes over an equal result. */
  @ApiProperty({ type: EnvironmentBuildResponse, nullable: true })
  build!: EnvironmentBuildResponse | null;

  static with(
    state: EnvironmentState,
    build: EnvironmentBuild | null,
  ): EnvironmentWithBuildResponse {
    return Object.assign(EnvironmentResponse.of(state), {
      build: build && {
        status: build.status,
        started_at: build.startedAt,
        duration_ms: build.durationMs,
        error: build.error,
      },
    });
  }
}

/** A list of environments or of versions of one. */
@ApiSchema({ name: 'EnvironmentList', description: 'All items, or as many as requested.' })
export class EnvironmentListResponse extends PageResponse {
  data!: EnvironmentResponse[];
}
