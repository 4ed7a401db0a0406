import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { Skill } from '../../runtimes/agent-runtime.js';
import type { ShownMcpServer } from '../mcp-servers.js';

/** The current version of an agent. */
@Entity('agents')
export class AgentEntity {
  @PrimaryColumn('uuid', { default: () => 'gen_random_uuid()' })
  id!: string;

  @Column({ name: 'user_id', type: 'uuid' })
  userId!: string;

  @Column({ type: 'text' })
  name!: string;

  /** As it was submitted, which may be an alias. */
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

  /** The environment may have been deleted. */
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

/** The contents of one version of an agent. The secrets of its tool servers are sealed in a column of their own. */
export interface AgentSnapshot {
  name: string;
  provider: string;
  model: string;
  system: string;
  skills: Skill[];
  mcpServers: ShownMcpServer[];
  environmentId: string | null;
  metadata: Record<string, string>;
}

/** One version of an agent; never changes. */
@Entity('agent_versions')
export class AgentVersionEntity {
  @PrimaryColumn({ name: 'agent_id', type: 'uuid' })
  agentId!: string;

  @PrimaryColumn({ type: 'integer' })
  version!: number;

  @Column({ type: 'jsonb' })
  snapshot!: AgentSnapshot;

  @Column({ name: 'mcp_secrets_sealed', type: 'text', nullable: true })
  mcpSecretsSealed!: string | null;

  /** When this version was written: the agent's `updated_at` of that time. */
  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;
}
