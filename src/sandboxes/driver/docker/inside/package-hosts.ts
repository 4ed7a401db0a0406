/** Prints the hosts that package managers in this image install from, as JSON. */
import { readPackageHosts } from '../../../../supervisor/package-hosts.js';

const hosts = await readPackageHosts(AbortSignal.timeout(10_000));
process.stdout.write(JSON.stringify(hosts));
