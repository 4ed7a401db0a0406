import {
  acceptOrigin,
  ensureInstallation,
  giveDataFolder,
  mismatchOf,
  readDataFolder,
  renewInstallation,
} from '../database/installation.js';
import { migrate, openDatabase } from '../database/migrate.js';
import { forgetAllSandboxes } from '../sandboxes/lifecycle/session-sandboxes.js';
import { ExitCode, type CommandOutput, table } from './command-line.js';
import type { Operator } from './operator.js';
import { audited, type OperatorDatabase, withUnmigratedDatabase } from './operator-database.js';
import type { Command } from 'commander';

/** What a command reports that has changed an installation; `object` is the id of the installation, for the audit log. */
type InstallationChange = CommandOutput & { object: string };

const COPY_ERROR = 'The database is a copy: the sandbox of this session belongs to the original';

/** Compares the installations of the database and of the data folder. */
export async function show({ sql, config }: OperatorDatabase): Promise<CommandOutput> {
  const record = await ensureInstallation(sql);
  const folder = await readDataFolder(config.dataDir);
  const problem = await mismatchOf(sql, record, folder, config.dataDir);
  return {
    json: {
      database: { id: record.id, made_in: record.origin, is_in: record.here },
      data_dir: { path: config.dataDir, id: folder.id ?? null },
      problem: problem ?? null,
    },
    text: [
      table(
        ['', 'INSTALLATION'],
        [
          ['database', record.id],
          [config.dataDir, folder.id ?? 'not claimed yet'],
        ],
      ),
      ...(problem === undefined ? [] : ['', problem]),
    ].join('\n'),
    exitCode: problem === undefined ? ExitCode.done : ExitCode.unsound,
  };
}

/** Assigns the data folder to the installation of the database. */
export async function adopt({ sql, config }: OperatorDatabase): Promise<InstallationChange> {
  const { id } = await ensureInstallation(sql);
  await acceptOrigin(sql);
  await giveDataFolder(config.dataDir, id);
  return {
    object: id,
    json: { id, data_dir: config.dataDir },
    text: `DATA_DIR ${config.dataDir} and the database are installation ${id}`,
  };
}

/** Turns a copy of a database into a new installation. @throws Error if the data folder is that of the original */
export async function renew({ sql, config }: OperatorDatabase): Promise<InstallationChange> {
  const { id: former } = await ensureInstallation(sql);
  const folder = await readDataFolder(config.dataDir);
  if (folder.id === former && folder.hasSandboxes) {
    throw new Error(
      `DATA_DIR ${config.dataDir} holds the sandboxes of installation ${former}: set it to another folder`,
    );
  }
  const id = await renewInstallation(sql, COPY_ERROR, forgetAllSandboxes);
  await giveDataFolder(config.dataDir, id);
  return {
    object: id,
    json: { id, former_id: former, data_dir: config.dataDir },
    text: `The database, installation ${former} before, and DATA_DIR ${config.dataDir} are installation ${id}`,
  };
}

/** Runs `work` on the database while no service runs on the data folder, and records it in the audit log. */
export async function whileStopped(
  command: Command,
  operator: Operator,
  work: (database: OperatorDatabase) => Promise<InstallationChange>,
): Promise<CommandOutput> {
  const config = operator.readConfig();
  const database = await openDatabase(config, { log: () => undefined, alone: true });
  try {
    await migrate(database.url);
    return await withUnmigratedDatabase(config, database.url, (opened) =>
      audited(command, operator, opened, undefined, () => work(opened)),
    );
  } finally {
    await database.stop();
  }
}
