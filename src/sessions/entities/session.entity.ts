import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { PublicResource } from '../session-resources.js';
import type { SessionStatus } from '../session-transitions.js';

@Entity('sessions')
export class Session {
  @PrimaryColumn('uuid')
  id!: string;

  @Column('uuid', { name: 'user_id' })
  userId!: string;

  @Column('uuid', { name: 'agent_id' })
  agentId!: string;

  @Column('integer', { name: 'agent_version' })
  agentVersion!: number;

  @Column('uuid', { name: 'environment_id', nullable: true })
  environmentId!: string | null;

  @Column('integer', { name: 'environment_version', nullable: true })
  environmentVersion!: number | null;

  @Column('text')
  provider!: string;

  @Column('text')
  status!: SessionStatus;

  @Column('integer')
  timeout!: number;

  @Column('jsonb')
  resources!: PublicResource[];

  /** Sealed; only the runner opens it. */
  @Column('text', { name: 'secrets_sealed', nullable: true, select: false })
  secretsSealed!: string | null;

  @Column('integer', { name: 'turn_count' })
  turnCount!: number;

  @Column('integer', { name: 'current_turn' })
  currentTurn!: number;

  @Column('integer', { name: 'exit_code', nullable: true })
  exitCode!: number | null;

  @Column('text', { nullable: true })
  error!: string | null;

  /** Text, because a Date has no microseconds. */
  @Column('text', { name: 'created_at' })
  createdAt!: string;

  @Column('text', { name: 'updated_at' })
  updatedAt!: string;
}
