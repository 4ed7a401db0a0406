import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { Skill } from '../../runtimes/agent-runtime.js';
import type { ShownMcpServer } from '../mcp-servers.js';

/** What an agent held in one version; its tool servers' secrets stand sealed beside it. */
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
