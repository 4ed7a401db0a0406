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

  /** Encrypted; only the runner decrypts it. */
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

  @Column('bigint', { name: 'budget_tokens', nullable: true })
  budgetTokens!: number | null;

  @Column('double precision', { name: 'budget_usd', nullable: true })
  budgetUsd!: number | null;

  /** Text, because a Date has no microseconds. */
  @Column('text', { name: 'created_at' })
  createdAt!: string;

  @Column('text', { name: 'updated_at' })
  updatedAt!: string;
}

/** A turn as clients see it. The columns of the queue and of the spool belong to the turn repositories' SQL. */
@Entity('turns')
export class Turn {
  @PrimaryColumn('uuid')
  id!: string;

  @Column('uuid', { name: 'session_id' })
  sessionId!: string;

  @Column('integer', { name: 'turn_number' })
  turnNumber!: number;

  @Column('text')
  prompt!: string;

  /** Seconds. */
  @Column('integer')
  timeout!: number;

  @Column('text')
  status!: SessionStatus;

  @Column('integer', { name: 'exit_code', nullable: true })
  exitCode!: number | null;

  @Column('text', { nullable: true })
  error!: string | null;

  @Column('text', { name: 'created_at' })
  createdAt!: string;

  @Column('text', { name: 'started_at', nullable: true })
  startedAt!: string | null;

  @Column('text', { name: 'ended_at', nullable: true })
  endedAt!: string | null;
}
