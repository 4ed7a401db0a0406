import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';

const NONE: readonly string[] = [];
const contexts = new WeakMap<readonly string[], SecureContext>();

/**
 * A TLS context that trusts these certificates besides Node's own and the system's. Kept, because reading hundreds of
 * certificates takes longer than a connection.
 * @param certificates as PEM
 */
export function trusting(certificates: readonly string[] = NONE): SecureContext {
  let context = contexts.get(certificates);
  if (context === undefined) {
    const others = [...getCACertificates('default'), ...getCACertificates('system')];
    context = createSecureContext({ ca: [...new Set([...others, ...certificates])] });
    contexts.set(certificates, context);
  }
  return context;
}
