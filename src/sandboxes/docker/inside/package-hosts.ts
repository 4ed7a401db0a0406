/** Prints, as JSON, the hosts from which package managers install in this image. */
import { readPackageHosts } from '../../shared/package-hosts.js';

const hosts = await readPackageHosts(AbortSignal.timeout(10_000));
process.stdout.write(JSON.stringify(hosts));
