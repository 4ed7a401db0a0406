import { constants } from 'node:fs';
import { access, mkdtemp, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { AppConfig } from '../../config/app-config.js';
import { diagnose, type Diagnosis, fail, type Finding, ok, warn } from './finding.js';

const GIB = 2 ** 30;
const LEAST_BYTES = GIB;
const LEAST_INODES = 10_000;

/** Is there room, and may this user write where the service does? */
export async function checkDisk(config: AppConfig): Promise<Finding[]> {
  return [
    await diagnose('permissions', () => checkPermissions(config.dataDir)),
    await diagnose('disk', () => checkRoom(config)),
  ];
}

async function checkPermissions(dataDir: string): Promise<Diagnosis> {
  const folder = await stat(dataDir).catch(() => undefined);
  if (!folder) {
    const parent = dirname(dataDir);
    await access(parent, constants.W_OK);
    return warn(
      `DATA_DIR, ${dataDir}, is not there yet`,
      'start the service, or set DATA_DIR to its folder',
    );
  }
  if (!folder.isDirectory())
    return fail(`DATA_DIR, ${dataDir}, is no folder`, 'set it to a folder');
  const user = process.geteuid?.() ?? folder.uid;
  if (folder.uid !== user) {
    return warn(
      `DATA_DIR, ${dataDir}, belongs to the user ${folder.uid}, and this is ${user}`,
      'run this command as the user of the service: only then it sees what the service sees',
    );
  }
  const probe = await mkdtemp(join(dataDir, '.doctor-'));
  try {
    await writeFile(join(probe, 'probe'), 'x');
  } finally {
    await rm(probe, { recursive: true, force: true });
  }
  if ((folder.mode & 0o022) !== 0) {
    return warn(`Others may write to DATA_DIR, ${dataDir}`, `run chmod go-w ${dataDir}`);
  }
  return ok(`DATA_DIR, ${dataDir}, belongs to this user and can be written to`);
}

async function checkRoom(config: AppConfig): Promise<Diagnosis> {
  const diagnoses: Diagnosis[] = [];
  for (const folder of new Set([config.dataDir, config.cacheDir])) {
    diagnoses.push(await roomIn(folder, config.sandbox.diskBytes));
  }
  const [first = ok('')] = diagnoses.toSorted((a, b) => gravity(b) - gravity(a));
  return first;
}

async function roomIn(folder: string, sandboxBytes: number): Promise<Diagnosis> {
  const { bavail, bsize, ffree, files } = await statfs(await nearest(folder));
  const free = bavail * bsize;
  const said = `${(free / GIB).toFixed(1)} GiB are free below ${folder}`;
  const advice =
    '`sandboxes reap --idle 1h` makes room; more disk, or a smaller SANDBOX_DISK, keeps it';
  // Some file systems have no fixed number of files, and say 0.
  if (files > 0 && ffree < LEAST_INODES) {
    return fail(`${said}, but room for ${ffree} files only`, advice);
  }
  if (free < LEAST_BYTES) return fail(said, advice);
  return free < sandboxBytes * 2
    ? warn(`${said}, and one sandbox may fill ${(sandboxBytes / GIB).toFixed(1)} GiB`, advice)
    : ok(said);
}

/** The folder, or the one that it would be made in. */
async function nearest(folder: string): Promise<string> {
  const there = await stat(folder).then(
    () => true,
    () => false,
  );
  return there || folder === dirname(folder) ? folder : nearest(dirname(folder));
}

function gravity({ verdict }: Diagnosis): number {
  return ['ok', 'skip', 'warn', 'fail'].indexOf(verdict);
}
