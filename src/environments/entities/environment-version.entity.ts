import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { Networking } from '../networking.js';
import type { PackageSpec } from '../packages.js';

/** What an environment held in one version; its values of `env_vars` stand sealed beside it. */
export interface EnvironmentSnapshot {
  name: string | null;
  packages: PackageSpec[];
  envVarKeys: string[];
  setupScript: string;
  networking: Networking;
}

/** One version of an environment; never changes. */
@Entity('environment_versions')
export class EnvironmentVersionEntity {
  @PrimaryColumn({ name: 'environment_id', type: 'uuid' })
  environmentId!: string;

  @PrimaryColumn({ type: 'integer' })
  version!: number;

  @Column({ type: 'jsonb' })
  snapshot!: EnvironmentSnapshot;

  @Column({ name: 'env_vars_sealed', type: 'text', nullable: true })
  envVarsSealed!: string | null;

  /** When this version was written: the environment's `updated_at` of that time. */
  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;
}
