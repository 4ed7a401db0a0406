import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { Networking } from '../dto/networking.dto.js';
import type { PackageSpec } from '../packages.js';

/** The current version of an environment. */
@Entity('environments')
export class EnvironmentEntity {
  @PrimaryColumn('uuid', { default: () => 'gen_random_uuid()' })
  id!: string;

  @Column({ name: 'user_id', type: 'uuid' })
  userId!: string;

  @Column({ type: 'text', nullable: true })
  name!: string | null;

  @Column({ type: 'jsonb' })
  packages!: PackageSpec[];

  /** Sorted. */
  @Column({ name: 'env_var_keys', type: 'text', array: true })
  envVarKeys!: string[];

  /** The variables with their values, encrypted; `null` for none. */
  @Column({ name: 'env_vars_sealed', type: 'text', nullable: true })
  envVarsSealed!: string | null;

  @Column({ name: 'setup_script', type: 'text' })
  setupScript!: string;

  @Column({ type: 'jsonb' })
  networking!: Networking;

  @Column({ type: 'integer', default: 1 })
  version!: number;

  /** Set by the first session that uses it, and never unset. Such an environment cannot be deleted. */
  @Column({ type: 'boolean', default: false })
  referenced!: boolean;

  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;

  @Column({ name: 'updated_at', type: 'text', default: () => 'now()' })
  updatedAt!: string;

  @Column({ name: 'archived_at', type: 'text', nullable: true })
  archivedAt!: string | null;
}

/** The contents of one version of an environment. The values of `env_vars` are sealed in a column of their own. */
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
