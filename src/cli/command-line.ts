import { Command, CommanderError, InvalidArgumentError, type OptionValues } from 'commander';
import { parseDuration } from '../config/parse.js';
import { EXIT_CODES_HELP, ExitCode, exitCodeOf } from './exit-codes.js';
import type { CommandOutput } from './output.js';

export const PROGRAM = 'agent-sessions';

/** Too long to be meant, and near what a timestamp can hold. */
const MAX_DURATION_SECONDS = 100 * 365 * 86_400;
const WIDTH = 100;

/** The bare program: subcommands inherit what is set here. */
export function createProgram(): Command {
  return new Command(PROGRAM)
    .description(
      'Operates an agent session service: its users, tokens, sessions, secrets and sandboxes.\n' +
        'Works on the database of the configuration (the environment variables of the service), and\n' +
        "finds the PostgreSQL of a service that runs on DATA_DIR by itself. From the service's folder:\n" +
        'npm run --silent cli -- COMMAND',
    )
    .addHelpText('after', EXIT_CODES_HELP)
    .configureHelp({ helpWidth: WIDTH })
    .exitOverride()
    .showSuggestionAfterError(false);
}

/** A group of commands, such as `token`. */
export function group(parent: Command, name: string, description: string): Command {
  return parent.command(name).description(description);
}

/** What `--help` shows below the options: whole command lines, without the program's name. */
export function withExamples(command: Command, examples: readonly string[], remark = ''): Command {
  const lines = examples.map((example) => `  ${PROGRAM} ${example}`);
  return command.addHelpText(
    'after',
    `${remark === '' ? '' : `\n${remark}\n`}\nExamples:\n${lines.join('\n')}`,
  );
}

/** Ends the definition of a command: adds `--json`, runs `work`, prints what it gives. */
export function runs(
  command: Command,
  work: (options: OptionValues, ...args: string[]) => Promise<CommandOutput>,
): void {
  command.option('--json', 'print one JSON object').action(async (...given: unknown[]) => {
    const args = given.slice(0, command.registeredArguments.length) as string[];
    const options = command.opts();
    const { json, text, exitCode } = await work(options, ...args);
    process.stdout.write(`${options.json ? JSON.stringify(json) : text}\n`);
    process.exitCode = exitCode ?? ExitCode.done;
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

/** The id of an event. */
export function cursorArgument(text: string): number {
  const id = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(id)) throw new InvalidArgumentError('It takes the id of an event.');
  return id;
}

/** The address of a service, with its API_PREFIX if it has one. @returns it without a trailing slash */
export function urlArgument(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    throw new InvalidArgumentError('It takes an address such as https://agents.example.com.');
  }
  return text.replace(/\/+$/, '');
}

/** Runs the program. @returns the exit code, see {@link ExitCode}; a failure is one line on standard error. */
export async function runProgram(program: Command, args: readonly string[]): Promise<number> {
  try {
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? ExitCode.done);
  } catch (error) {
    // commander has already said it.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : ExitCode.usage;
    process.stderr.write(`error: ${firstLine(error)}\n`);
    return exitCodeOf(error);
  }
}

/** A connection that failed on every address has its reasons inside, and no message of its own. */
export function firstLine(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return firstLine(error.errors[0]);
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.split('\n', 1)[0] ?? text;
}
