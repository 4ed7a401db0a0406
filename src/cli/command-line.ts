import { Command, CommanderError, InvalidArgumentError, type OptionValues } from 'commander';
import type { AppConfig } from '../config/app-config.js';
import { parseDuration } from '../config/parse.js';
import type { CommandOutput } from './output.js';

/** Reads the configuration when a command needs it: `--help` works with a bad one, too. */
export type ReadConfig = () => AppConfig;

/** Too long to be meant, and near what a timestamp can hold. */
const MAX_DURATION_SECONDS = 100 * 365 * 86_400;

/** The bare program: subcommands inherit what is set here. */
export function createProgram(): Command {
  return new Command('cli')
    .description('Operates an agent session service')
    .exitOverride()
    .showSuggestionAfterError(false);
}

/** A group of commands, such as `token`. */
export function group(parent: Command, name: string, description: string): Command {
  return parent.command(name).description(description);
}

/** Ends the definition of a command: adds `--json`, runs `work`, prints what it gives. */
export function runs(
  command: Command,
  work: (options: OptionValues, ...args: string[]) => Promise<CommandOutput>,
): void {
  command.option('--json', 'print one JSON object').action(async (...given: unknown[]) => {
    const args = given.slice(0, command.registeredArguments.length) as string[];
    const options = command.opts();
    const { json, text } = await work(options, ...args);
    process.stdout.write(`${options.json ? JSON.stringify(json) : text}\n`);
  });
}

/** `90d`, `12h`, `30m` → seconds. */
export function durationArgument(text: string): number {
  const seconds = parseDuration(text);
  if (seconds === undefined || seconds <= 0 || seconds > MAX_DURATION_SECONDS) {
    throw new InvalidArgumentError('It takes a duration such as 30m, 12h or 90d.');
  }
  return seconds;
}

/** A whole number that is not negative. */
export function countArgument(text: string): number {
  const count = /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
  if (!(count <= 1_000_000)) {
    throw new InvalidArgumentError('It takes a whole number from 0 to 1000000.');
  }
  return count;
}

/**
 * Runs the program.
 * @returns the exit code: 0, 1 for what could not be done (one line on stderr), 2 for a command line that is wrong.
 */
export async function runProgram(program: Command, args: readonly string[]): Promise<number> {
  try {
    await program.parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    // commander has already said it.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    process.stderr.write(`error: ${firstLine(error)}\n`);
    return 1;
  }
}

/** A connection that failed on every address has its reasons inside, and no message of its own. */
function firstLine(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return firstLine(error.errors[0]);
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.split('\n', 1)[0] ?? text;
}
