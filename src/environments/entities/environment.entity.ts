import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { Networking } from '../networking.js';
import type { PackageSpec } from '../packages.js';

/** An environment as it is now. */
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

  /** Set for good by the first session that uses it; forbids the hard delete. */
  @Column({ type: 'boolean', default: false })
  referenced!: boolean;

  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;

  @Column({ name: 'updated_at', type: 'text', default: () => 'now()' })
  updatedAt!: string;

  @Column({ name: 'archived_at', type: 'text', nullable: true })
  archivedAt!: string | null;
}
