import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const NEW_KEY = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'.split(' ');

/**
 * An authority of its own, and what it vouches for: `server-cert.pem` of 127.0.0.1, and a client's `cert.pem`, each with
 * its key; beside `ca.pem`, as Docker's tools name them.
 * @param names further names of the server
 */
export async function makeCertificates(
  folder: string,
  names: readonly string[] = [],
): Promise<void> {
  const subject = ['IP:127.0.0.1', ...names.map((name) => `DNS:${name}`)].join();
  const at = (name: string): string => join(folder, name);
  const openssl = (...args: string[]) => run('openssl', args, { cwd: folder });
  await openssl(
    ...['req', '-x509', ...NEW_KEY, '-days', '2', '-subj', '/CN=authority'],
    ...['-keyout', at('ca-key.pem'), '-out', at('ca.pem')],
  );
  await Promise.all(
    [
      { prefix: 'server-', extensions: `subjectAltName=${subject}\nextendedKeyUsage=serverAuth` },
      { prefix: '', extensions: 'extendedKeyUsage=clientAuth' },
    ].map(async ({ prefix, extensions }, serial) => {
      const request = at(`${prefix}request.pem`);
      await writeFile(at(`${prefix}extensions`), extensions);
      await openssl(
        ...['req', ...NEW_KEY, '-subj', `/CN=${prefix}test`],
        ...['-keyout', at(`${prefix}key.pem`), '-out', request],
      );
      await openssl(
        ...['x509', '-req', '-in', request, '-CA', at('ca.pem'), '-CAkey', at('ca-key.pem')],
        ...['-set_serial', String(serial + 1), '-days', '2', '-extfile', at(`${prefix}extensions`)],
        ...['-out', at(`${prefix}cert.pem`)],
      );
    }),
  );
}
