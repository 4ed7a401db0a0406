#!/usr/bin/env node
import 'reflect-metadata';
import { loadConfig } from '../config/app-config.js';
import { runProgram } from './command-line.js';
import { operatorName } from './operator.js';
import { buildProgram } from './program.js';

const program = buildProgram({
  name: operatorName(process.env.SUDO_USER),
  readConfig: () => loadConfig(process.env),
});
process.exitCode = await runProgram(program, process.argv.slice(2));
