import { IsInt, IsString, MaxLength } from 'class-validator';
import { IfPresent, IfPresentAndNotNull } from '../../common/http/validators.js';
import { Item } from '../../common/validation/dto.js';
import { Located } from '../../common/validation/located.js';
import { StringMap } from '../../common/validation/maps.js';
import { PACKAGE_MANAGERS, packagesProblems } from '../packages.js';
import { NetworkingDto, networkingDtoOf } from './networking.dto.js';

/** One package to install. */
export class PackageDto {
  manager!: (typeof PACKAGE_MANAGERS)[number];
  /** As the manager knows it, at most 214 characters. */
  name!: string;
  /** The newest when left out. */
  version?: string;
}

/** Body of `POST /environments`. Nothing is required. */
export class CreateEnvironmentDto {
  /** At most 255 characters. */
  @IfPresentAndNotNull()
  @MaxLength(255)
  @IsString()
  name?: string | null;

  /** At most 256. Objects, or the short form `manager:name@version`; a bare name is a package of apt. */
  @IfPresent()
  @Located(packagesProblems)
  packages?: (PackageDto | string)[];

  /**
   * Variables to export in the sandbox: at most 256, names of letters, digits and underscores, values of at most
   * 65,536 characters, 524,288 in all. Write-only: responses have `env_var_keys`.
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

  /** Bash, run after the packages are installed. At most 1,048,576 characters. */
  @IfPresent()
  @MaxLength(1_048_576)
  @IsString()
  setup_script?: string;

  @IfPresent()
  @Item(networkingDtoOf)
  networking?: NetworkingDto;
}

/** Body of `PUT /environments/{id}`. What is left out stays as it is; what is there replaces the whole of it. */
export class UpdateEnvironmentDto extends CreateEnvironmentDto {
  /** The version that the change starts from. */
  @IsInt()
  version!: number;
}
