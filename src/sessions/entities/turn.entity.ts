import { Column, Entity, PrimaryColumn } from 'typeorm';
import type { SessionStatus } from '../session-transitions.js';

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
