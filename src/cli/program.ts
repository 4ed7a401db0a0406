import type { Command } from 'commander';
import { addChangesCommand } from './changes-command.js';
import { createProgram } from './command-line.js';
import { addDoctorCommand } from './doctor-command.js';
import { addFileCommands } from './files-commands.js';
import { addInstallationCommands } from './installation-commands.js';
import { addLogCommands, addSecretsCommands } from './secrets-commands.js';
import type { Operator } from './operator.js';
import { addSandboxCommands } from './sandbox-commands.js';
import { addSessionCommands } from './session-commands.js';
import { addUsageCommand } from './usage-command.js';
import { addTokenCommands } from './token-commands.js';
import { addUserCommands } from './user-commands.js';

const COMMANDS = [
  addUserCommands,
  addTokenCommands,
  addSessionCommands,
  addFileCommands,
  addChangesCommand,
  addUsageCommand,
  addSandboxCommands,
  addLogCommands,
  addSecretsCommands,
  addInstallationCommands,
  addDoctorCommand,
];

/** The program with all its commands. */
export function buildProgram(operator: Operator): Command {
  const program = createProgram();
  for (const add of COMMANDS) add(program, operator);
  return program;
}
