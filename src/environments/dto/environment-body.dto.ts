import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { IsInt, IsString, MaxLength } from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validators.js';
import { OneOf } from '../../common/openapi/one-of.decorator.js';
import { Integer } from '../../common/openapi/properties.js';
import { Item } from '../../common/validation/dto.js';
import { Located } from '../../common/validation/located.js';
import { StringMap } from '../../common/validation/maps.js';
import {
  MAX_PACKAGES,
  MAX_PACKAGE_TEXT,
  PACKAGE_MANAGERS,
  PACKAGE_NAME,
  PACKAGE_VERSION,
  packagesProblems,
} from '../packages.js';
import { NetworkingDto, networkingDtoOf } from './networking.dto.js';

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
  description: 'One package to install, in the object form or the short one.',
})
@OneOf({
  members: () => [
    PackageDto,
    {
      name: 'PackageShortForm',
      schema: {
        type: 'string',
        description: '`manager:name@version`; without a version the newest, without a manager apt.',
        examples: ['jq', 'npm:typescript', 'pip:requests@2.32.3'],
      },
    },
  ],
})
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
   * in all. Write-only: responses have `env_var_keys`. On `PUT` they replace the whole set. Default `{}`.
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

/** Body of `PUT /environments/{id}`. What is left out stays as it is; what is there replaces the whole of it. */
@ApiSchema({
  name: 'UpdateEnvironmentRequest',
  description:
    'A change of an environment. What is left out stays as it is; what is there replaces the whole of it.',
})
export class UpdateEnvironmentDto extends CreateEnvironmentDto {
  /** The version that the change starts from. */
  @Integer({ example: 1 })
  @IsInt()
  version!: number;
}
