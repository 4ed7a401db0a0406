import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isWithin } from './host.js';
import { packageRoot } from '../shared/package-root.js';

/**
 * Where the compiled supervisor lies below the package: it is a program of its own and always runs from the build, also
 * when this module itself is run from source by a test.
 */
const SUPERVISOR = 'dist/src/sandboxes/shared/supervisor/main.js';

/** The compiled supervisor as seen through a view's `app`. */
export function supervisorEntry(app: string): string {
  return join(app, SUPERVISOR);
}

/** @throws Error if the package has not been built */
export function requireBuild(): void {
  const path = supervisorEntry(packageRoot());
  if (!existsSync(path)) throw new Error(`${path} is missing: run \`npm run build\``);
}

/** Folders of the service that lie below /usr, which sandboxes otherwise see: they are covered. */
export function hiddenFolders(stateDir: string): string[] {
  const shared = new Set([
    '/usr',
    '/usr/local',
    '/usr/share',
    '/usr/lib',
    '/usr/src',
    '/usr/local/lib',
  ]);
  const own = [packageRoot(), dirname(stateDir), stateDir].filter(
    (path) => isWithin(path, '/usr') && !shared.has(path),
  );
  return own.filter((path) => !own.some((other) => other !== path && isWithin(path, other)));
}
