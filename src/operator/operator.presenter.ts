import type { IssuedToken, TokenRecord, User } from '../auth/accounts.js';
import type { ListedSandbox } from '../sandboxes/lifecycle/sandbox-operations.js';
import type {
  IssuedTokenObject,
  SandboxObject,
  TokenObject,
  UserObject,
} from './dto/operator.dto.js';

/** The part of a list that was asked for. @param rows of which one more than `limit` was read */
export const pageOf = <Row, Item>(
  rows: readonly Row[],
  limit: number,
  present: (row: Row) => Item,
): { data: Item[]; has_more: boolean } => ({
  data: rows.slice(0, limit).map(present),
  has_more: rows.length > limit,
});

export const presentSandbox = (sandbox: ListedSandbox): SandboxObject => ({
  id: sandbox.id,
  state: sandbox.state,
  state_since: sandbox.since,
  session_id: sandbox.session,
  user: sandbox.user,
  driver: sandbox.driver,
  host: sandbox.host,
});

export const presentUser = (user: User): UserObject => ({
  id: user.id,
  name: user.name,
  operator: user.operator,
  session_limit: user.sessionLimit,
  stored_bytes: user.storedBytes,
  created_at: user.createdAt,
});

export const presentToken = (token: TokenRecord): TokenObject => ({
  id: token.id,
  user: token.userName,
  name: token.name,
  created_at: token.createdAt,
  last_used_at: token.lastUsedAt,
  expires_at: token.expiresAt,
  revoked_at: token.revokedAt,
});

/** The only time that the secret of a token leaves the service. */
export const presentIssued = (issued: IssuedToken): IssuedTokenObject => ({
  id: issued.id,
  token: issued.token,
  user: issued.userName,
  name: issued.name,
  expires_at: issued.expiresAt,
});
