import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { Skill } from '../../runtimes/agent-runtime.js';
import type { ShownMcpServer } from '../mcp-servers.js';

/** An agent as it is now. */
@Entity('agents')
export class AgentEntity {
  @PrimaryColumn('uuid', { default: () => 'gen_random_uuid()' })
  id!: string;

  @Column({ name: 'user_id', type: 'uuid' })
  userId!: string;

  @Column({ type: 'text' })
  name!: string;

  /** As it was submitted, aliases too. */
  @Column({ type: 'text' })
  provider!: string;

  @Column({ type: 'text' })
  model!: string;

  @Column({ type: 'text' })
  system!: string;

  @Column({ type: 'jsonb' })
  skills!: Skill[];

  @Column({ name: 'mcp_servers', type: 'jsonb' })
  mcpServers!: ShownMcpServer[];

  /** The values that `mcp_servers` lacks, encrypted; `null` for none. */
  @Column({ name: 'mcp_secrets_sealed', type: 'text', nullable: true })
  mcpSecretsSealed!: string | null;

  /** May name an environment that is gone. */
  @Column({ name: 'environment_id', type: 'uuid', nullable: true })
  environmentId!: string | null;

  @Column({ type: 'jsonb' })
  metadata!: Record<string, string>;

  @Column({ type: 'integer', default: 1 })
  version!: number;

  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;

  @Column({ name: 'updated_at', type: 'text', default: () => 'now()' })
  updatedAt!: string;

  @Column({ name: 'archived_at', type: 'text', nullable: true })
  archivedAt!: string | null;
}
