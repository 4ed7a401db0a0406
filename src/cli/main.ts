import 'reflect-metadata';
import { loadConfig } from '../config/app-config.js';
import { createProgram, runProgram } from './command-line.js';
import { addLogCommands } from './log-commands.js';
import { addSecretsCommands } from './secrets-commands.js';
import { addSessionCommands } from './session-commands.js';
import { addTokenCommands } from './token-commands.js';
import { addUserCommands } from './user-commands.js';

const program = createProgram();
const readConfig = () => loadConfig(process.env);
const COMMANDS = [
  addUserCommands,
  addTokenCommands,
  addSessionCommands,
  addLogCommands,
  addSecretsCommands,
];
for (const add of COMMANDS) add(program, readConfig);
process.exitCode = await runProgram(program, process.argv.slice(2));
