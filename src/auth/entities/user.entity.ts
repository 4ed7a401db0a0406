import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** Whom tokens and resources belong to. */
@Entity('users')
export class UserEntity {
  @PrimaryGeneratedColumn('uuid')
  id!: string;

  @Column({ type: 'text', unique: true })
  name!: string;

  /** Overrides `SESSION_LIMIT`; `null` follows it. */
  @Column({ name: 'session_limit', type: 'integer', nullable: true })
  sessionLimit!: number | null;

  /** ISO 8601 with microseconds; text, because a Date would lose them. */
  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;
}
