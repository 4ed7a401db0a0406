import { Inject, Injectable } from '@nestjs/common';
import { conflict, upstream } from '../common/errors.js';
import { AppConfig } from '../config/app-config.js';
import { ProviderCatalogue } from '../runtimes/provider-catalogue.js';
import { SandboxError, type SandboxDriver } from '../sandboxes/driver/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { SandboxRoom } from '../sandboxes/sandbox-room.js';
import { UserKeys } from '../secrets/user-keys.js';
import { type Budget, Budgets } from '../usage/budgets.js';
import { SANDBOX_GONE } from './session-transitions.js';
import { SessionsRepository } from './sessions.repository.js';
import { WorkersRepository } from './workers.repository.js';

const PREFLIGHT_LIMIT_MS = 10_000;

/** What a turn's agent is, as far as it decides whether the turn can run. */
interface TurnAgent {
  provider: string;
  model: string;
}

/** What must be there before a turn is accepted: a key, a budget that is not used up, and a sandbox. */
@Injectable()
export class TurnRequirements {
  constructor(
    private readonly catalogue: ProviderCatalogue,
    private readonly userKeys: UserKeys,
    private readonly budgets: Budgets,
    private readonly room: SandboxRoom,
    private readonly workers: WorkersRepository,
    private readonly repository: SessionsRepository,
    private readonly host: SandboxHost,
    private readonly config: AppConfig,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  /** For the first turn of a new session. @throws DomainError with what is missing */
  async forSession(userId: string, agent: TurnAgent, budget: Budget): Promise<void> {
    await this.requireAccess(userId, agent);
    await this.budgets.requireForTurn(userId, agent.model, budget);
    await this.preflight();
  }

  /** For a further turn. @throws DomainError with what is missing */
  async forPrompt(userId: string, agent: TurnAgent, sessionId: string): Promise<void> {
    await this.requireAccess(userId, agent);
    await this.budgets.requireForSession(sessionId);
    await this.budgets.requireForTurn(userId, agent.model, {});
    if (!(await this.sandboxIsThere(sessionId))) throw conflict(SANDBOX_GONE);
  }

  /** @throws DomainError 400 when neither the user nor the configuration has the key that the agent needs. */
  private async requireAccess(userId: string, { provider, model }: TurnAgent): Promise<void> {
    await this.catalogue.requireAccess(this.catalogue.runtimeOf(provider), model, (api) =>
      this.userKeys.has(userId, api),
    );
  }

  /** Checks that sandboxes can be made, by this process or, if its role is `api`, by a worker. */
  private async preflight(): Promise<void> {
    if (this.config.role === 'api') {
      const problem = await this.workers.problem(this.driver.name);
      if (problem !== null) throw upstream(`Sandbox creation failed: ${problem}`);
      return;
    }
    try {
      await this.room.check(AbortSignal.timeout(PREFLIGHT_LIMIT_MS));
    } catch (error) {
      const cause = error instanceof Error ? error.message : String(error);
      throw upstream(`Sandbox creation failed: ${cause}`, error);
    }
  }

  /** Does the sandbox still exist? If that is unknown, the answer is yes: the turn will find out. */
  private async sandboxIsThere(sessionId: string): Promise<boolean> {
    const sandbox = await this.repository.sandboxUnscoped(sessionId);
    if (sandbox === undefined) return false;
    // Only the sandbox's own host can check. Elsewhere the record counts.
    if (sandbox.driver !== this.driver.name || sandbox.host !== this.host.name) return true;
    try {
      const signal = AbortSignal.timeout(PREFLIGHT_LIMIT_MS);
      return (await this.driver.exists({ sandboxId: sandbox.id, signal })) !== 'no';
    } catch (error) {
      return !(error instanceof SandboxError && error.kind === 'gone');
    }
  }
}
