import { join } from 'node:path';
import {
  contentsOnEngine,
  gatewayOnEngine,
  leftovers,
  removeInstallation,
  supervisors,
} from './docker-engine.js';
import { onDocker, onSprites } from './driver.js';
import type { SandboxContents } from './planted-secrets.js';
import { commandOf, names, processesWithin } from './sandbox-processes.js';
import { installationOf, type Service } from './service.js';
import { contentsOfSprites, spritesOf, spriteSupervisors } from './sprites/suite.js';

const SUPERVISOR = 'supervisor/main.js';
/** It serves all sandboxes, and ends some time after the last one and the service. */
const GATEWAY = 'gateway/main.js';

/** What tells a service's sandboxes from those of others: its folder where they are local, else its database. */
type Owner = Pick<Service, 'dataDir' | 'databaseUrl'>;

/** What a service has left on the machine: folders of sandboxes, kernel users, processes. */
export function remains(dataDir: string): string[] {
  const sandboxes = join(dataDir, 'sandboxes');
  const folders = names(sandboxes).filter(
    (name) => !['.uids', '.etc', '.probe', '.rootfs', '.layers', '.builds'].includes(name),
  );
  const users = names(join(sandboxes, '.uids'));
  return [...folders, ...users.map((uid) => `user ${uid}`), ...processesOf(dataDir)];
}

/** Processes that were started for the sandboxes of a service, each with its arguments. */
export const processesOf = (dataDir: string): string[] =>
  processesWithin(dataDir)
    .map((pid) => `process ${pid} ${commandOf(pid)}`)
    .filter((text) => !text.includes(GATEWAY));

/** What a service has left, wherever its sandboxes are. */
export async function leftOf({ dataDir, databaseUrl }: Owner): Promise<string[]> {
  const local = remains(dataDir);
  if (onSprites()) {
    const left = spritesOf(await installationOf(databaseUrl));
    return [...local, ...left.map(({ name }) => `sprite ${name}`)];
  }
  return onDocker() ? [...local, ...(await leftovers(await installationOf(databaseUrl)))] : local;
}

/** The turns and scripts that run in a service's sandboxes, wherever these are. */
export async function runningOf({ dataDir, databaseUrl }: Owner): Promise<string[]> {
  if (onSprites()) {
    const running = spriteSupervisors(await installationOf(databaseUrl));
    return running.map(({ pid, command }) => `process ${pid} ${command}`);
  }
  if (!onDocker()) return processesOf(dataDir);
  return (await supervisors(await installationOf(databaseUrl))).map(
    ({ container, pid, command }) => `process ${pid} of ${container} ${command}`,
  );
}

/** Ends the supervisors of a service's turns, and nothing else, as if each had crashed. */
export async function killSupervisors({ dataDir, databaseUrl }: Owner): Promise<void> {
  const pids = onSprites()
    ? spriteSupervisors(await installationOf(databaseUrl)).map(({ pid }) => pid)
    : onDocker()
      ? (await supervisors(await installationOf(databaseUrl))).map(({ pid }) => pid)
      : processesWithin(dataDir).filter((pid) => commandOf(pid).includes(SUPERVISOR));
  if (pids.length === 0) throw new Error('nothing runs that could be killed');
  for (const pid of pids) process.kill(pid, 'SIGKILL');
}

/** The files and processes of a service's sandboxes, without those of its gateway. */
export async function contentsOf({ dataDir, databaseUrl }: Owner): Promise<SandboxContents> {
  if (onSprites()) return contentsOfSprites(await installationOf(databaseUrl));
  return onDocker()
    ? contentsOnEngine(await installationOf(databaseUrl))
    : {
        folders: [join(dataDir, 'sandboxes')],
        pids: processesWithin(dataDir).filter((pid) => !commandOf(pid).includes(GATEWAY)),
      };
}

/** Kills the gateway of a service, which must be running. */
export async function killGateway({ dataDir, databaseUrl }: Owner): Promise<void> {
  const pids = onDocker()
    ? [await gatewayOnEngine(await installationOf(databaseUrl))]
    : processesWithin(dataDir).filter((pid) => commandOf(pid).includes(GATEWAY));
  const [pid, ...others] = pids;
  if (pid === undefined || others.length > 0) throw new Error(`${pids.length} gateways run`);
  process.kill(pid, 'SIGKILL');
}

/** Of a database that a test has brought itself: what is kept for the next session on an engine. */
export async function removeCaches(databaseUrl: string): Promise<void> {
  if (onDocker()) await removeInstallation(await installationOf(databaseUrl));
}
