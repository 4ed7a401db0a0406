import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** The owner of tokens and resources. */
@Entity('users')
export class UserEntity {
  @PrimaryGeneratedColumn('uuid')
  id!: string;

  @Column({ type: 'text', unique: true })
  name!: string;

  /** May use the routes for operators, which show and change what belongs to all users. */
  @Column({ type: 'boolean', default: false })
  operator!: boolean;

  /** Overrides `SESSION_LIMIT`; `null` follows it. */
  @Column({ name: 'session_limit', type: 'integer', nullable: true })
  sessionLimit!: number | null;

  /** Overrides `SANDBOXES_PER_USER`; `null` follows it, 0 is no limit. */
  @Column({ name: 'sandboxes_per_user', type: 'integer', nullable: true })
  sandboxesPerUser!: number | null;

  /** Overrides `STORED_BYTES_PER_USER`; `null` follows it, 0 is no limit. */
  @Column({ name: 'stored_bytes_per_user', type: 'bigint', nullable: true })
  storedBytesPerUser!: number | null;

  /** Overrides `REQUESTS_PER_MINUTE`; `null` follows it, 0 is no limit. */
  @Column({ name: 'requests_per_minute', type: 'integer', nullable: true })
  requestsPerMinute!: number | null;

  /** Overrides `STREAMS_PER_USER`; `null` follows it, 0 is no limit. */
  @Column({ name: 'streams_per_user', type: 'integer', nullable: true })
  streamsPerUser!: number | null;

  /** Overrides `TOKENS_PER_MONTH`; `null` follows it, 0 is no limit. */
  @Column({ name: 'tokens_per_month', type: 'bigint', nullable: true })
  tokensPerMonth!: number | null;

  /** Overrides `USD_PER_MONTH`; `null` follows it, 0 is no limit. */
  @Column({ name: 'usd_per_month', type: 'double precision', nullable: true })
  usdPerMonth!: number | null;

  /** Bytes that the user's agents and environments take up, including all versions. Maintained by triggers. */
  @Column({ name: 'stored_bytes', type: 'bigint', default: 0, insert: false, update: false })
  storedBytes!: number;

  /** ISO 8601 with microseconds; a string, because a Date would lose them. */
  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;
}

/** A stored token. The hash can identify a token but cannot be used as one. */
@Entity('access_tokens')
export class AccessTokenEntity {
  @PrimaryGeneratedColumn('uuid')
  id!: string;

  @Column({ name: 'user_id', type: 'uuid' })
  userId!: string;

  @Column({ type: 'text', default: '' })
  name!: string;

  /** SHA-256 of the whole token. */
  @Column({ name: 'token_hash', type: 'bytea', unique: true })
  tokenHash!: Buffer;

  @Column({ name: 'created_at', type: 'text', default: () => 'now()' })
  createdAt!: string;

  @Column({ name: 'expires_at', type: 'text', nullable: true })
  expiresAt!: string | null;

  @Column({ name: 'revoked_at', type: 'text', nullable: true })
  revokedAt!: string | null;

  @Column({ name: 'last_used_at', type: 'text', nullable: true })
  lastUsedAt!: string | null;
}
