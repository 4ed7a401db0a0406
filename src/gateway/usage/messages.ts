import type { GrantSeal } from '../grants.js';
import type { UsageEntry } from './usage-entry.js';

/** What the gateway sends to workers that read usage, one JSON object a line. */
export type ToUsageReader =
  | {
      /** Increasing. The next batch comes when this one is acknowledged. */
      batch: number;
      entries: readonly UsageEntry[];
    }
  /** The answer to a flush request: everything that was recorded before it is acknowledged. */
  | { flushed: number }
  /** Another gateway serves the socket now. This one only finishes the requests that it is forwarding. */
  | { replaced: true };

/** What workers send, one JSON object a line. */
export type FromUsageReader =
  | { ack: number }
  | { flush: number }
  /** Refuse further model requests of a turn, with this message. */
  | { block: { turn: string; message: string } };

const CONTEXT = 'gateway usage reader v1';

/** A worker proves with this text that it has the grant keys and may read usage. */
export function usageProof(seal: GrantSeal): string {
  return seal.sealText('usage', CONTEXT);
}

export function isUsageProof(seal: GrantSeal, proof: string): boolean {
  return seal.openText(proof, CONTEXT) === 'usage';
}
