import { Injectable, Logger } from '@nestjs/common';
import { OperatorActions } from '../audit/operator-audit.service.js';
import { Accounts, type IssuedToken, type User } from '../auth/accounts.js';
import { DomainError, notFound } from '../common/errors.js';
import { isUuid } from '../common/storable.js';
import { Sql } from '../database/sql.js';
import { giveUpIdleSandbox, NO_SANDBOX } from '../sandboxes/lifecycle/sandbox-operations.js';
import { SessionOperations } from '../sessions/session-operations.js';

const DAY_SECONDS = 86_400;

/**
 * What operators change by requests. Each action is recorded in the audit log like the command of the same name, whether
 * it succeeds or fails.
 */
@Injectable()
export class OperatorService {
  private readonly logger = new Logger(OperatorService.name);

  constructor(
    private readonly accounts: Accounts,
    private readonly sessions: SessionOperations,
    private readonly sql: Sql,
    private readonly actions: OperatorActions,
  ) {}

  /** @param by the operator's id. @throws DomainError when the name is taken or empty. */
  createUser(by: string, name: string, sessionLimit: number | null): Promise<User> {
    return this.audited(by, 'user create', undefined, () =>
      this.accounts.createUser(name, sessionLimit),
    );
  }

  /**
   * @param by the operator's id.
   * @param days how long the token is valid; `null` for ever.
   * @throws DomainError when there is no such user.
   */
  issueToken(by: string, userId: string, name: string, days: number | null): Promise<IssuedToken> {
    return this.audited(by, 'token create', userId, async () => {
      if (!isUuid(userId)) throw notFound('There is no such user');
      const user = await this.accounts.getUserById(userId);
      return this.accounts.createToken(user.name, name, days === null ? null : days * DAY_SECONDS);
    });
  }

  /** @param by the operator's id. @throws DomainError when there is no such token. */
  revokeToken(by: string, id: string): Promise<void> {
    return this.audited(by, 'token revoke', id, () => this.accounts.revokeToken(id));
  }

  /** @param by the operator's id. @throws DomainError when there is no such sandbox, or it is not idle. */
  destroySandbox(by: string, id: string): Promise<void> {
    return this.audited(by, 'sandboxes destroy', id, async () => {
      if (!isUuid(id)) throw notFound(NO_SANDBOX);
      await giveUpIdleSandbox(this.sql, id);
    });
  }

  /** @param by the operator's id. @throws DomainError when there is no such session, or its state does not allow it. */
  terminateSession(by: string, id: string): Promise<void> {
    return this.audited(by, 'sessions terminate', id, () => this.sessions.terminate(id));
  }

  private async audited<T extends { id: string } | void>(
    by: string,
    action: string,
    named: string | undefined,
    work: () => Promise<T>,
  ): Promise<T> {
    const { name } = await this.accounts.getUserById(by);
    const record = (object: string | undefined, result: string): Promise<void> =>
      // Only ids: a path may hold anything that a client mistook for an id, even a secret.
      this.actions.record({
        operator: `user ${name}`,
        action,
        object: object !== undefined && isUuid(object) ? object : null,
        result,
      });
    let done: T;
    try {
      done = await work();
    } catch (error) {
      // If recording fails, too, the operator reads the error of the action itself.
      await record(named, error instanceof DomainError ? error.kind : 'failed').catch(
        () => undefined,
      );
      throw error;
    }
    // The answer may hold a token that is shown only once.
    await record(done?.id ?? named, 'done').catch((error: unknown) =>
      this.logger.error(`"${action}" of ${name} is missing in the audit log: ${String(error)}`),
    );
    return done;
  }
}
