import { isDatabaseUnavailable } from '../common/database-errors.js';
import { DomainError, type DomainErrorKind } from '../common/errors.js';
import { ConfigError, parseBytes, parseDuration } from '../config/parse.js';
import {
  CommanderError,
  Option,
  Command,
  InvalidArgumentError,
  type OptionValues,
} from 'commander';

/** The exit codes of commands. Scripts may rely on them. */
export const ExitCode = {
  done: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  conflict: 4,
  unreachable: 5,
  configuration: 6,
  unsound: 7,
} as const;
export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

export const EXIT_CODES_HELP = `
Exit codes:
  0  done
  1  failed for another reason, which standard error says in one line
  2  the command line is wrong
  3  there is no such user, token or session
  4  a conflict: it is there already, or its state does not allow that
  5  the database, or the service at --url, cannot be reached
  6  the configuration is wrong, or the encryption keys are not those of the database
  7  looked, and not all is well: a check of doctor failed, a turn that was followed did not end with 0,
     or a patch was cut
`;

const OF_REFUSALS: Partial<Record<DomainErrorKind, ExitCode>> = {
  bad_request: ExitCode.usage,
  not_found: ExitCode.notFound,
  conflict: ExitCode.conflict,
};
/** Errors of the server itself: it rejects this client or has no such database. */
const NOT_LET_IN = new Set(['28000', '28P01', '3D000']);

/** A resource that the command needs cannot be reached. */
export class Unreachable extends Error {}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof DomainError) return OF_REFUSALS[error.kind] ?? ExitCode.failed;
  if (error instanceof ConfigError) return ExitCode.configuration;
  if (error instanceof Unreachable || isDatabaseUnavailable(error)) return ExitCode.unreachable;
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (typeof code === 'string' && NOT_LET_IN.has(code)) return ExitCode.unreachable;
  // Error messages of the key ring start with the name of its variable.
  if (String(message).startsWith('ENCRYPTION_KEYS')) return ExitCode.configuration;
  return ExitCode.failed;
}

/** The result in one word, for the audit log. */
export function resultOf(error: unknown): string {
  return error instanceof DomainError ? error.kind : 'failed';
}

/** A command's output: `json` for programs, `text` for people. */
export interface CommandOutput {
  json: object;
  text: string;
  /** The command has written its output itself. */
  isSilent?: true;
  /** Default: success. */
  exitCode?: ExitCode;
}

/** Left-aligned columns, two spaces apart, with a heading; `null` is shown as `-`. */
export function table(
  heading: readonly string[],
  rows: readonly (readonly (string | number | null)[])[],
): string {
  const lines = [heading, ...rows.map((row) => row.map((cell) => printable(cell)))];
  const widths = heading.map((_title, column) =>
    Math.max(...lines.map((line) => (line[column] ?? '').length)),
  );
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Formats milliseconds for people: `42 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Formats lines of `name  value` with aligned values. */
export function fields(pairs: readonly (readonly [string, string | number | null])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}`).join('\n');
}

/** Replaces control characters, because a name may contain any and the terminal would interpret them. */
function printable(cell: string | number | null): string {
  if (cell === null || cell === '') return '-';
  return String(cell).replaceAll(/\p{Cc}/gu, '\uFFFD');
}

/** The option for the access token of commands that call the service over HTTP. */
export function tokenOption(): Option {
  return new Option(
    '--token <token>',
    'an access token; prefer the variable, because other users can see arguments',
  ).env('AGENT_SESSIONS_TOKEN');
}

/** An error in options that commander cannot detect. */
export function usageError(message: string): CommanderError {
  process.stderr.write(`error: ${message}\n`);
  return new CommanderError(ExitCode.usage, 'agent-sessions.usage', message);
}

export const PROGRAM = 'agent-sessions';

/** A longer duration is a mistake, and close to the largest timestamp. */
const MAX_DURATION_SECONDS = 100 * 365 * 86_400;
const WIDTH = 100;

/** The program without commands. Subcommands inherit these settings. */
export function createProgram(): Command {
  return new Command(PROGRAM)
    .description(
      'Operates an agent session service: its users, tokens, sessions, secrets and sandboxes.\n' +
        'Uses the database of the configuration (the environment variables of the service). If the\n' +
        'service runs its own PostgreSQL in DATA_DIR, it finds that one. Run in the folder of the service:\n' +
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

/** Adds examples to `--help`: complete command lines, without the program's name. */
export function withExamples(command: Command, examples: readonly string[], remark = ''): Command {
  const lines = examples.map((example) => `  ${PROGRAM} ${example}`);
  return command.addHelpText(
    'after',
    `${remark === '' ? '' : `\n${remark}\n`}\nExamples:\n${lines.join('\n')}`,
  );
}

/** Completes the definition of a command: adds `--json`, runs `work` and prints its output. */
export function runs(
  command: Command,
  work: (options: OptionValues, ...args: string[]) => Promise<CommandOutput>,
): void {
  command.option('--json', 'print one JSON object').action(async (...given: unknown[]) => {
    const args = given.slice(0, command.registeredArguments.length) as string[];
    const options = command.opts();
    const { json, text, isSilent, exitCode } = await work(options, ...args);
    if (!isSilent) process.stdout.write(`${options.json ? JSON.stringify(json) : text}\n`);
    process.exitCode = exitCode ?? ExitCode.done;
  });
}

/** `90d`, `12h`, `30m` → seconds. */
export function durationArgument(text: string): number {
  const seconds = parseDuration(text);
  if (seconds === undefined || seconds <= 0 || seconds > MAX_DURATION_SECONDS) {
    throw new InvalidArgumentError('Expected a duration such as 30m, 12h or 90d.');
  }
  return seconds;
}

/** Parses a whole number that is not negative. */
export function countArgument(text: string): number {
  const count = /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
  if (!(count <= 1_000_000)) {
    throw new InvalidArgumentError('Expected a whole number from 0 to 1000000.');
  }
  return count;
}

/** Parses a number that is not negative and may have a fraction. */
export function amountArgument(text: string): number {
  const amount = /^\d{1,15}(\.\d{1,9})?$/.test(text) ? Number(text) : Number.NaN;
  if (!(amount <= 1e15))
    throw new InvalidArgumentError('Expected a number such as 1000000 or 2.50.');
  return amount;
}

/** Parses a whole number of tokens. */
export function tokensArgument(text: string): number {
  const tokens = amountArgument(text);
  if (!Number.isInteger(tokens)) throw new InvalidArgumentError('Expected a whole number.');
  return tokens;
}

/** `64KiB`, `1GiB`, `0` → bytes. */
export function sizeArgument(text: string): number {
  const bytes = parseBytes(text);
  if (bytes === undefined) {
    throw new InvalidArgumentError('Expected a size such as 512MiB or 2GiB.');
  }
  return bytes;
}

/** Parses the id of an event. */
export function cursorArgument(text: string): number {
  const id = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(id)) throw new InvalidArgumentError('Expected the id of an event.');
  return id;
}

/** Parses the address of a service, including its API_PREFIX. @returns it without a trailing slash */
export function urlArgument(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    throw new InvalidArgumentError('Expected an address such as https://agents.example.com.');
  }
  return text.replace(/\/+$/, '');
}

/** Runs the program. @returns the exit code, see {@link ExitCode}. A failure prints one line to standard error. */
export async function runProgram(program: Command, args: readonly string[]): Promise<number> {
  try {
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? ExitCode.done);
  } catch (error) {
    // commander has already printed the message.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : ExitCode.usage;
    process.stderr.write(`error: ${firstLine(error)}\n`);
    return exitCodeOf(error);
  }
}

/** When a connection fails on every address, the error has no message of its own, only a list of causes. */
export function firstLine(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return firstLine(error.errors[0]);
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.split('\n', 1)[0] ?? text;
}
