import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { ENCRYPTION_KEYS, type Service } from './service.js';

const HERE = dirname(fileURLToPath(import.meta.url));
const BUILD = pathToFileURL(join(HERE, '..', '..', 'dist')).href;

/** All routes that the built application registers, as `METHOD /path/:parameter`. */
export async function registeredRoutes(
  service: Pick<Service, 'databaseUrl' | 'dataDir'>,
): Promise<string[]> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(HERE, 'app-routes.fixture.mjs'), BUILD],
    {
      timeout: 30_000,
      env: {
        ...process.env,
        NODE_OPTIONS: '',
        APP_ROLE: 'api',
        ENCRYPTION_KEYS,
        DATABASE_URL: service.databaseUrl,
        DATA_DIR: service.dataDir,
      },
    },
  );
  const registered = JSON.parse(stdout) as { method: string; url: string }[];
  return registered.map(({ method, url }) => `${method} ${url}`);
}
