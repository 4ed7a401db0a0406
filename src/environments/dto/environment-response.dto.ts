import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { Integer, Timestamp, Uuid } from '../../common/openapi/properties.js';
import type { Networking } from '../networking.js';
import type { EnvironmentSnapshot } from '../entities/environment-version.entity.js';
import { NetworkingResponse } from './networking.dto.js';
import { PackageDto } from './environment-body.dto.js';

/** What an environment holds in one version, and where it belongs. Timestamps are as clients see them. */
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
  /** ISO 8601, UTC, microseconds. */
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

/** A list of environments or of versions of one. */
@ApiSchema({ name: 'EnvironmentList', description: 'All of them: there are no pages.' })
export class EnvironmentListResponse {
  data!: EnvironmentResponse[];
}
