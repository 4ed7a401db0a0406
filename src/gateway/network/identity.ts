import type { GrantSeal } from '../grants.js';

const CONTEXT = 'gateway sandbox v1';

/**
 * The secret with which a sandbox's relay identifies itself over the network. Only holders of the grant keys can make
 * one, and it must be kept from the agent: whoever has it can connect in the name of the sandbox.
 */
export function sandboxIdentity(seal: GrantSeal, sandboxId: string): string {
  return seal.sealText(sandboxId, CONTEXT);
}

/** @returns the id of the sandbox; `undefined` for text that is not an identity of these keys */
export function sandboxOf(seal: GrantSeal, identity: string): string | undefined {
  return seal.openText(identity, CONTEXT);
}
