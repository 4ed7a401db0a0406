import { randomBytes } from 'node:crypto';
import { expect, it } from '@jest/globals';
import { GrantSeal, KEY_PREFIXES } from '../gateway/grants.js';
import type { KeyRing } from '../secrets/key-ring.js';
import { GrantIssuer } from './turn-grants.js';
import type { TurnPlan } from './turn-plan.js';

/** What the supervisor gives a program at the turn's deadline before it kills it. */
const GRACE_MS = 600;

it('issues grants that are valid until the turn has certainly been ended at its deadline', () => {
  const keys = [randomBytes(32).toString('base64url')];
  const issuer = new GrantIssuer({ derive: () => keys } as unknown as KeyRing);
  const model = { api: 'anthropic', url: 'https://model.example', key: 'the-real-key' } as const;
  const plan = {
    sandboxId: 'a-sandbox',
    gateway: { identifies: true },
    credentials: { model, tools: [] },
    repositories: [],
    runtimeTurn: { access: {} },
  } as unknown as TurnPlan;
  const deadline = 1_000_000.5;
  const { runtimeTurn } = issuer.issue({ id: 't', session_id: 's', user_id: 'u' }, plan, deadline);
  const key = runtimeTurn.access.apiKey ?? '';
  expect(key.startsWith(KEY_PREFIXES.anthropic)).toBe(true);
  const grant = new GrantSeal(keys).open(key.slice(KEY_PREFIXES.anthropic.length));
  expect(grant).toMatchObject({ sandbox: 'a-sandbox', session: 's', turn: 't', user: 'u' });
  expect(grant?.expires).toBeGreaterThan(deadline + GRACE_MS);
  expect(grant?.expires).toBeLessThan(deadline + 60_000);
});
