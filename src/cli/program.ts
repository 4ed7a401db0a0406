import type { Command } from 'commander';
import { createProgram } from './command-line.js';
import { addDoctorCommand } from './doctor-command.js';
import { addLogCommands } from './log-commands.js';
import type { Operator } from './operator-database.js';
import { addSandboxCommands } from './sandbox-commands.js';
import { addSecretsCommands } from './secrets-commands.js';
import { addSessionCommands } from './session-commands.js';
import { addTokenCommands } from './token-commands.js';
import { addUserCommands } from './user-commands.js';

const COMMANDS = [
  addUserCommands,
  addTokenCommands,
  addSessionCommands,
  addSandboxCommands,
  addLogCommands,
  addSecretsCommands,
  addDoctorCommand,
];

/** The program with all its commands. */
export function buildProgram(operator: Operator): Command {
  const program = createProgram();
  for (const add of COMMANDS) add(program, operator);
  return program;
}
