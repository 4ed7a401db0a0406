import { Injectable } from '@nestjs/common';
import { type GrantContent, GrantSeal, KEY_PREFIXES } from '../gateway/grants.js';
import type { RuntimeTurn } from '../runtimes/agent-runtime.js';
import { GRANT_KEYS, KeyRing } from '../secrets/key-ring.js';
import { GIT_CONFIG, GIT_GRANT } from './sandbox-files.js';
import type { TurnPlan } from './turn-plan.js';
import type { ClaimedTurn } from './turn-queue.repository.js';

/**
 * How long grants outlive the turn's deadline. The supervisor needs a moment to end a program then; one whose grant is
 * refused first would end by itself, and the turn with the refusal instead of the timeout.
 */
const AFTER_DEADLINE_MS = 5_000;

/** What a sandbox gets instead of credentials, for one turn. */
export interface TurnGrants {
  /** The turn with a key that only the gateway accepts. */
  runtimeTurn: RuntimeTurn;
  /** For git and the tool servers: variables that programs in the sandbox need. */
  env: Readonly<Record<string, string>>;
}

/** Issues the grants of turns. The gateway opens them with the same keys. */
@Injectable()
export class GrantIssuer {
  private readonly seal: GrantSeal;

  constructor(keys: KeyRing) {
    this.seal = new GrantSeal(keys.derive(GRANT_KEYS));
  }

  /** @param deadline when the turn's time is over; milliseconds since 1970 */
  issue(
    turn: Pick<ClaimedTurn, 'id' | 'session_id' | 'user_id'>,
    plan: TurnPlan,
    deadline: number,
  ): TurnGrants {
    const base = {
      sandbox: plan.gateway.identifies ? plan.sandboxId : null,
      session: turn.session_id,
      turn: turn.id,
      user: turn.user_id,
      expires: Math.ceil(deadline) + AFTER_DEADLINE_MS,
    };
    const seal = (grant: GrantContent): string => this.seal.seal({ ...base, ...grant });
    const { model, tools } = plan.credentials;
    const repositories = plan.repositories.flatMap(({ url, token }) =>
      token === undefined ? [] : [{ url, token }],
    );
    const access = { ...plan.runtimeTurn.access };
    if (model !== undefined)
      access.apiKey = KEY_PREFIXES[model.api] + seal({ kind: 'model', ...model });
    const env = Object.fromEntries(
      tools.map(({ variable, ...server }) => [variable, seal({ kind: 'mcp', ...server })]),
    );
    if (repositories.length > 0) {
      env[GIT_GRANT] = seal({ kind: 'git', repositories });
      env['GIT_CONFIG_SYSTEM'] = `${plan.runtimeTurn.layout.home}/${GIT_CONFIG}`;
    }
    return { runtimeTurn: { ...plan.runtimeTurn, access }, env };
  }
}
