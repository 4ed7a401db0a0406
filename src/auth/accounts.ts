import { DataSource, type EntityManager } from 'typeorm';
import { badRequest, conflict, notFound } from '../common/errors.js';
import { isUuid } from '../common/uuid.js';
import { generateAccessToken, hashAccessToken } from './access-token.js';
import { AccessTokenEntity } from './entities/access-token.entity.js';
import { UserEntity } from './entities/user.entity.js';

/** A user as operators see it. Timestamps are ISO 8601 with microseconds. */
export interface User {
  id: string;
  name: string;
  /** `null`: the configured `SESSION_LIMIT` applies. */
  sessionLimit: number | null;
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

/** A token that was just made; the only time that its secret is at hand. */
export interface IssuedToken {
  id: string;
  token: string;
  name: string;
  userName: string;
  expiresAt: string | null;
}

/** The entities that {@link Accounts} needs its data source to know. */
export const ACCOUNT_ENTITIES = [UserEntity, AccessTokenEntity];

/** Any number, the same in every version: "somebody makes the first user". */
const FIRST_USER_LOCK = 4_726_001_188;
const FIRST_USER_NAME = 'dev';
const UNIQUE_VIOLATION = '23505';
const MAX_NAME_LENGTH = 255;

/** Users and their tokens, for operators: the command line and the first start. */
export class Accounts {
  constructor(private readonly dataSource: DataSource) {}

  /** @throws Refusal when the name is taken or empty. */
  async createUser(name: string, sessionLimit: number | null = null): Promise<User> {
    return insertUser(this.dataSource.manager, name, sessionLimit);
  }

  /** Oldest first. */
  async listUsers(): Promise<User[]> {
    return this.dataSource.manager.find(UserEntity, { order: { createdAt: 'ASC', id: 'ASC' } });
  }

  /** @throws Refusal when there is no such user. */
  async getUser(name: string): Promise<User> {
    const user = await this.dataSource.manager.findOneBy(UserEntity, { name });
    if (!user) throw notFound(`There is no user ${JSON.stringify(name)}`);
    return user;
  }

  /**
   * Holds for the next session; those that are active stay.
   * @param sessionLimit `null` for the configured `SESSION_LIMIT`.
   * @throws Refusal when there is no such user.
   */
  async setSessionLimit(name: string, sessionLimit: number | null): Promise<User> {
    await this.dataSource.manager.update(UserEntity, { name }, { sessionLimit });
    return this.getUser(name);
  }

  /**
   * @param lifetimeSeconds `null` for a token that does not expire.
   * @throws Refusal when there is no such user.
   */
  async createToken(
    userName: string,
    name = '',
    lifetimeSeconds: number | null = null,
  ): Promise<IssuedToken> {
    const user = await this.getUser(userName);
    return insertToken(this.dataSource.manager, user, name, lifetimeSeconds);
  }

  /** Newest first, expired and revoked ones too. @param userName only of this user. */
  async listTokens(userName?: string): Promise<TokenRecord[]> {
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
      .getRawMany<TokenRecord>();
  }

  /**
   * Every process stops taking the token within seconds. Revoking it again changes nothing.
   * @throws Refusal when there is no such token.
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
   * Makes the user `dev` and a token of theirs when the database has no user at all. Of processes that start together
   * only one does, and only that one gets the token.
   */
  async ensureFirstUser(): Promise<IssuedToken | undefined> {
    return this.dataSource.transaction(async (manager) => {
      await manager.query('SELECT pg_advisory_xact_lock($1)', [FIRST_USER_LOCK]);
      if (await manager.exists(UserEntity)) return undefined;
      const user = await insertUser(manager, FIRST_USER_NAME, null);
      return insertToken(manager, user, 'first start', null);
    });
  }
}

async function insertUser(
  manager: EntityManager,
  name: string,
  sessionLimit: number | null,
): Promise<User> {
  requireName(name, 'A user needs a name');
  const user = manager.create(UserEntity, { name, sessionLimit });
  try {
    await manager.insert(UserEntity, user);
  } catch (error) {
    if ((error as { code?: string }).code !== UNIQUE_VIOLATION) throw error;
    throw conflict(`There already is a user ${JSON.stringify(name)}`);
  }
  return user;
}

async function insertToken(
  manager: EntityManager,
  user: User,
  name: string,
  lifetimeSeconds: number | null,
): Promise<IssuedToken> {
  const token = generateAccessToken();
  const tokenHash = hashAccessToken(token);
  // By the database's clock, which is also the one that judges it.
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
