import { DataSource, type EntityManager } from 'typeorm';
import { badRequest, conflict, notFound } from '../common/errors.js';
import { isUuid } from '../common/storable.js';
import { generateAccessToken, hashAccessToken } from './access-token.js';
import { AccessTokenEntity, UserEntity } from './entities/user.entity.js';

/**
 * Limits of one user. `null` follows the configuration, 0 is no limit; but 0 sessions means that the user may have
 * none.
 */
export interface UserLimits {
  sessionLimit: number | null;
  sandboxesPerUser: number | null;
  storedBytesPerUser: number | null;
  requestsPerMinute: number | null;
  streamsPerUser: number | null;
  tokensPerMonth: number | null;
  usdPerMonth: number | null;
}

/** A user as operators see it. Timestamps are ISO 8601 with microseconds. */
export interface User extends UserLimits {
  id: string;
  name: string;
  /** Whether the user's tokens open the routes for operators. */
  operator: boolean;
  /** Bytes that the user's agents and environments take up. */
  storedBytes: number;
  createdAt: string;
}

/** A token without its secret. */
export interface TokenRecord {
  id: string;
  userName: string;
  name: string;
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
  lastUsedAt: string | null;
}

/** A new token. This is the only time that its secret is available. */
export interface IssuedToken {
  id: string;
  token: string;
  name: string;
  userName: string;
  expiresAt: string | null;
}

/** The entities that the data source of {@link Accounts} must contain. */
export const ACCOUNT_ENTITIES = [UserEntity, AccessTokenEntity];

/** The advisory lock of creating the first user. Any number will do, but it must be the same in every version. */
const FIRST_USER_LOCK = 4_726_001_188;
const FIRST_USER_NAME = 'dev';
const UNIQUE_VIOLATION = '23505';
const MAX_NAME_LENGTH = 255;

/** Manages users and their tokens for the command line and the first start. */
export class Accounts {
  constructor(private readonly dataSource: DataSource) {}

  /** @throws DomainError when the name is taken or empty. */
  async createUser(
    name: string,
    sessionLimit: number | null = null,
    operator = false,
  ): Promise<User> {
    return insertUser(this.dataSource.manager, name, { sessionLimit, operator });
  }

  /**
   * Makes a user an operator, or takes it back. Every process knows within seconds.
   * @throws DomainError when there is no such user.
   */
  async setOperator(name: string, operator: boolean): Promise<User> {
    await this.dataSource.manager.update(UserEntity, { name }, { operator });
    return this.getUser(name);
  }

  /** Oldest first. @param limit default: all. */
  async listUsers(limit?: number): Promise<User[]> {
    return this.dataSource.manager.find(UserEntity, {
      order: { createdAt: 'ASC', id: 'ASC' },
      ...(limit !== undefined && { take: limit }),
    });
  }

  /** @throws DomainError when there is no such user. */
  async getUser(name: string): Promise<User> {
    const user = await this.dataSource.manager.findOneBy(UserEntity, { name });
    if (!user) throw notFound(`There is no user ${JSON.stringify(name)}`);
    return user;
  }

  /** @throws DomainError when there is no such user any more. */
  async getUserById(id: string): Promise<User> {
    const user = await this.dataSource.manager.findOneBy(UserEntity, { id });
    if (!user) throw notFound('There is no such user');
    return user;
  }

  /**
   * Changes limits from now on; existing resources are kept. Processes see new limits of requests and streams within
   * seconds.
   * @param limits the limits to change.
   * @throws DomainError when there is no such user.
   */
  async setLimits(name: string, limits: Partial<UserLimits>): Promise<User> {
    if (Object.keys(limits).length > 0) {
      await this.dataSource.manager.update(UserEntity, { name }, limits);
    }
    return this.getUser(name);
  }

  /**
   * @param lifetimeSeconds `null` for a token that does not expire.
   * @throws DomainError when there is no such user.
   */
  async createToken(
    userName: string,
    name = '',
    lifetimeSeconds: number | null = null,
  ): Promise<IssuedToken> {
    const user = await this.getUser(userName);
    return insertToken(this.dataSource.manager, user, name, lifetimeSeconds);
  }

  /**
   * Newest first, including expired and revoked tokens.
   * @param userName only tokens of this user.
   * @param limit default: all.
   */
  async listTokens(userName?: string, limit?: number): Promise<TokenRecord[]> {
    return this.dataSource.manager
      .createQueryBuilder(AccessTokenEntity, 'token')
      .innerJoin(UserEntity, 'owner', 'owner.id = token.userId')
      .where(userName === undefined ? 'true' : 'owner.name = :userName', { userName })
      .select('token.id', 'id')
      .addSelect('owner.name', 'userName')
      .addSelect('token.name', 'name')
      .addSelect('token.createdAt', 'createdAt')
      .addSelect('token.expiresAt', 'expiresAt')
      .addSelect('token.revokedAt', 'revokedAt')
      .addSelect('token.lastUsedAt', 'lastUsedAt')
      .orderBy('token.createdAt', 'DESC')
      .addOrderBy('token.id', 'DESC')
      .limit(limit)
      .getRawMany<TokenRecord>();
  }

  /**
   * Revokes a token. Every process rejects it within seconds. Revoking it again changes nothing.
   * @throws DomainError when there is no such token.
   */
  async revokeToken(id: string): Promise<void> {
    const { affected } = isUuid(id)
      ? await this.dataSource.manager.update(
          AccessTokenEntity,
          { id },
          { revokedAt: () => 'coalesce(revoked_at, now())' },
        )
      : { affected: 0 };
    if (!affected) throw notFound(`There is no token with the id ${JSON.stringify(id)}`);
  }

  /**
   * Creates the user `dev` with a token if the database has no user. When several processes start together, only one
   * creates the user and gets the token.
   */
  async ensureFirstUser(): Promise<IssuedToken | undefined> {
    return this.dataSource.transaction(async (manager) => {
      await manager.query('SELECT pg_advisory_xact_lock($1)', [FIRST_USER_LOCK]);
      if (await manager.exists(UserEntity)) return undefined;
      const user = await insertUser(manager, FIRST_USER_NAME);
      return insertToken(manager, user, 'first start', null);
    });
  }
}

async function insertUser(
  manager: EntityManager,
  name: string,
  options: { sessionLimit?: number | null; operator?: boolean } = {},
): Promise<User> {
  requireName(name, 'A user needs a name');
  const user = manager.create(UserEntity, { name, ...options });
  try {
    await manager.insert(UserEntity, user);
  } catch (error) {
    if ((error as { code?: string }).code !== UNIQUE_VIOLATION) throw error;
    throw conflict(`There already is a user ${JSON.stringify(name)}`);
  }
  return manager.findOneByOrFail(UserEntity, { name });
}

async function insertToken(
  manager: EntityManager,
  user: User,
  name: string,
  lifetimeSeconds: number | null,
): Promise<IssuedToken> {
  const token = generateAccessToken();
  const tokenHash = hashAccessToken(token);
  // The database's clock, because it also decides when the token has expired.
  const expiresAt =
    lifetimeSeconds === null ? null : () => `now() + interval '1 second' * ${lifetimeSeconds}`;
  await manager.insert(AccessTokenEntity, { userId: user.id, name, tokenHash, expiresAt });
  const stored = await manager.findOneByOrFail(AccessTokenEntity, { tokenHash });
  return { id: stored.id, token, name, userName: user.name, expiresAt: stored.expiresAt };
}

function requireName(name: string, otherwise: string): void {
  if (name.trim() === '' || name.includes('\0') || !name.isWellFormed()) {
    throw badRequest(otherwise);
  }
  if (name.length > MAX_NAME_LENGTH) {
    throw badRequest(`A name has at most ${MAX_NAME_LENGTH} characters`);
  }
}
