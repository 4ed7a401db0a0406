import type { Command } from 'commander';
import { group, runs, withExamples } from './command-line.js';
import { type Operator, reads } from './operator.js';

const STOPPED = `Stop all services on DATA_DIR first. Without DATABASE_URL the command starts the PostgreSQL in DATA_DIR
by itself. Run it as the user and with the configuration of the service.`;

/** `installation`. */
export function addInstallationCommands(program: Command, operator: Operator): void {
  const installation = group(
    program,
    'installation',
    'manage which installation the database and DATA_DIR belong to',
  );
  reads(
    withExamples(
      installation
        .command('show')
        .description(
          'show the installation of the database and of DATA_DIR, and whether they match',
        ),
      ['installation show', 'installation show --json'],
    ),
    operator,
    async (database) => (await import('./installation-work.js')).show(database),
  );
  changesStopped(
    withExamples(
      installation
        .command('adopt')
        .description(
          'assign DATA_DIR to the installation of the database, if neither original will ever run again',
        ),
      ['installation adopt'],
      `Use it for a database that was moved or restored from a backup, or a DATA_DIR that belonged to another database. Sandboxes
in DATA_DIR that the database does not know are destroyed once ORPHAN_GRACE has passed.
${STOPPED}`,
    ),
    operator,
    'adopt',
  );
  changesStopped(
    withExamples(
      installation
        .command('renew')
        .description('turn a copy of a database into a new installation'),
      ['installation renew'],
      `Use it for a copy that will run beside the original, such as one for tests. Sandboxes stay with the original:
sessions of the copy cannot be continued, and those that were pending or running end in an error. DATA_DIR must not be
that of the original.
${STOPPED}`,
    ),
    operator,
    'renew',
  );
}

/** Completes the definition of a command that changes something while no service runs on the data folder. */
function changesStopped(command: Command, operator: Operator, work: 'adopt' | 'renew'): void {
  runs(command, async () => {
    const installations = await import('./installation-work.js');
    return installations.whileStopped(command, operator, installations[work]);
  });
}
