import type { GrantedApi } from '../grants.js';
import type { Tokens } from './meter.js';

/** One request to a model API, as the gateway has counted it. */
export interface UsageEntry extends Tokens {
  /** A UUID. An entry that is delivered again has the same id. */
  id: string;
  session: string;
  turn: string;
  user: string;
  api: GrantedApi;
  /** As the provider names it; `''` if it does not. */
  model: string;
  /** The status of the provider's response. */
  status: number;
  /** When the request began. Milliseconds since 1970. */
  at: number;
  durationMs: number;
}

/** Entries that are delivered together. */
export interface UsageBatch {
  entries: readonly UsageEntry[];
  /** Removes them from the journal. */
  acknowledge(): void;
}
