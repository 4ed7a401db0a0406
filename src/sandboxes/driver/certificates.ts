import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';

/** Where Linux distributions keep the certificates that they trust, in one file. */
const SYSTEM_BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/** The variables that name such a file for OpenSSL and Go, Node, git, curl, Python, Rust, Deno and the AWS tools. */
const BUNDLE_VARIABLES = [
  'SSL_CERT_FILE',
  'NODE_EXTRA_CA_CERTS',
  'GIT_SSL_CAINFO',
  'CURL_CA_BUNDLE',
  'REQUESTS_CA_BUNDLE',
  'PIP_CERT',
  'CARGO_HTTP_CAINFO',
  'DENO_CERT',
  'AWS_CA_BUNDLE',
];

/**
 * The certificates that programs in sandboxes trust if the operator has added some: those of this host, or Node's own if
 * there are none, and the added ones.
 * @param company each in PEM
 */
export function certificateBundle(company: readonly string[]): string {
  return [systemCertificates() ?? rootCertificates.join('\n'), ...company, '']
    .map((text) => text.trim())
    .join('\n');
}

/** The environment of a sandbox that makes programs use a bundle. @param path as programs in the sandbox see it */
export function certificateEnvironment(path: string): Record<string, string> {
  return Object.fromEntries(BUNDLE_VARIABLES.map((name) => [name, path]));
}

function systemCertificates(): string | undefined {
  for (const path of SYSTEM_BUNDLES) {
    try {
      return readFileSync(path, 'utf8');
    } catch {
      // This distribution keeps them in another file.
    }
  }
  return undefined;
}
