import 'reflect-metadata';
import { loadConfig } from '../config/app-config.js';
import { createProgram, runProgram } from './command-line.js';
import { addSecretsCommands } from './secrets-commands.js';
import { addTokenCommands } from './token-commands.js';
import { addUserCommands } from './user-commands.js';

const program = createProgram();
const readConfig = () => loadConfig(process.env);
for (const add of [addUserCommands, addTokenCommands, addSecretsCommands]) add(program, readConfig);
process.exitCode = await runProgram(program, process.argv.slice(2));
