import type { EnvironmentSnapshot } from '../entities/environment-version.entity.js';
import { LimitedNetworkingDto, NetworkingDto } from './networking.dto.js';
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
export class EnvironmentResponse {
  id!: string;
  /** Always `environment`. */
  type!: 'environment';
  name!: string | null;
  /** In the object form. */
  packages!: PackageDto[];
  /** The names of `env_vars`, sorted. Values are never returned. */
  env_var_keys!: string[];
  setup_script!: string;
  networking!: NetworkingDto | LimitedNetworkingDto;
  /** Starts at 1 and grows by one with each change. */
  version!: number;
  /** ISO 8601, UTC, microseconds. */
  created_at!: string;
  /** When this version was written, or the environment was archived. */
  updated_at!: string;
  /** `null` while the environment is active. */
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

export class EnvironmentListResponse {
  data!: EnvironmentResponse[];
}
