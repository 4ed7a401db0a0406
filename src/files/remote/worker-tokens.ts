import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { Clock } from '../../common/clock.js';
import { KeyRing } from '../../secrets/key-ring.js';

/** The purpose for which the keys are derived. */
const PURPOSE = 'files of sandboxes on other hosts';
/** How long a token is valid, also for clocks that differ by so much. */
const VALID_MS = 60_000;

/** What a token is for: the files of one sandbox at one address. */
export interface TokenScope {
  url: string;
  sandboxId: string;
}

/**
 * Proves to processes of the same installation that this process belongs to it: both have the same encryption keys. A
 * token opens one connection; its proof shows the process that connects that it has reached a worker of the installation.
 */
@Injectable()
export class WorkerTokens {
  private readonly keys: readonly string[];
  /** The tokens that were redeemed, with the time until which they would be valid. */
  private readonly redeemed = new Map<string, number>();

  constructor(
    keys: KeyRing,
    private readonly clock: Clock,
  ) {
    this.keys = keys.derive(PURPOSE);
  }

  issue(scope: TokenScope): string {
    const open = `${this.clock.now()}.${randomBytes(16).toString('base64url')}`;
    return `${open}.${sign(this.keys[0] ?? '', 'token', scope, open)}`;
  }

  /** @returns the proof for the process that has issued the token, or undefined if the token is not valid */
  redeem(token: string, scope: TokenScope): string | undefined {
    const now = this.clock.now();
    const [, open = '', time = '', signature = ''] =
      /^((\d{1,16})\.[\w-]{22})\.([\w-]{43})$/.exec(token) ?? [];
    const key = this.keys.find((one) => isSame(signature, sign(one, 'token', scope, open)));
    if (key === undefined || Math.abs(now - Number(time)) > VALID_MS) return undefined;
    for (const [used, until] of this.redeemed) if (until < now) this.redeemed.delete(used);
    if (this.redeemed.has(open)) return undefined;
    this.redeemed.set(open, Number(time) + VALID_MS);
    return sign(key, 'proof', scope, open);
  }

  /** Whether a proof is that of a process with the same keys, for this token. */
  isProof(proof: string, token: string, scope: TokenScope): boolean {
    const open = token.slice(0, token.lastIndexOf('.'));
    return this.keys.some((key) => isSame(proof, sign(key, 'proof', scope, open)));
  }
}

function sign(key: string, what: string, { url, sandboxId }: TokenScope, open: string): string {
  const text = [what, url, sandboxId, open].join('\n');
  return createHmac('sha256', key).update(text).digest('base64url');
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
