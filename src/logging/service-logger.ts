import { currentWork } from '../common/work-context.js';
import type { LoggerService, LogLevel } from '@nestjs/common';
import { type DestinationStream, destination, type Level, pino, stdTimeFunctions } from 'pino';

const MAX_CAUSES = 4;

/** An error's fields in the log. */
export interface DescribedError {
  type: string;
  message: string;
  code?: string;
  stack?: string;
}

/**
 * Reduces an error to what may be logged: its kind, message and stack, and those of its causes. Other fields are
 * dropped, because database errors carry the statement's parameters and process errors the environment.
 */
export function describeError(error: unknown): DescribedError {
  if (!(error instanceof Error)) return { type: typeof error, message: String(error) };
  const { code } = error as { code?: unknown };
  return {
    type: error.constructor.name,
    message: error.message,
    ...(typeof code === 'string' ? { code } : {}),
    stack: stackOf(error, 0),
  };
}

function stackOf(error: Error, depth: number): string {
  const own = error.stack ?? `${error.name}: ${error.message}`;
  const { cause } = error;
  if (!(cause instanceof Error) || depth === MAX_CAUSES) return own;
  return `${own}\ncaused by: ${stackOf(cause, depth + 1)}`;
}

const REPLACEMENT = '[redacted]';
/** Shorter values would redact ordinary text. */
const MIN_LENGTH = 8;
/** Matches an access token anywhere in a line. */
const ACCESS_TOKEN = /\bast_[0-9A-Za-z]{16,}/g;

/** Redacts secrets in log lines: those of the process, access tokens, and those of the current turn. */
export class LineRedactor {
  private readonly secrets: readonly string[];

  /** @param secrets configured values; short ones are not redacted, because they also occur in ordinary text. */
  constructor(secrets: readonly (string | undefined)[]) {
    this.secrets = [...new Set(secrets.flatMap(variantsOf))].sort((a, b) => b.length - a.length);
  }

  redact(line: string): string {
    let clean = line;
    for (const secret of this.secrets) {
      if (clean.includes(secret)) clean = clean.replaceAll(secret, REPLACEMENT);
    }
    if (clean.includes('ast_')) clean = clean.replace(ACCESS_TOKEN, REPLACEMENT);
    return currentWork().redact?.(clean) ?? clean;
  }
}

/** The secret in plain, JSON-encoded, URL-encoded and URL-decoded form. */
function variantsOf(secret: string | undefined): string[] {
  if (secret === undefined) return [];
  return [
    secret,
    JSON.stringify(secret).slice(1, -1),
    encodeURIComponent(secret),
    decoded(secret),
  ].filter((variant) => variant.length >= MIN_LENGTH);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Nest's names → pino's. */
const LEVELS: Record<LogLevel, Level> = {
  fatal: 'fatal',
  error: 'error',
  warn: 'warn',
  log: 'info',
  debug: 'debug',
  verbose: 'trace',
};

/** Nest components that log every module and route, which is only useful for debugging. */
const CHATTY = new Set<unknown>(['InstanceLoader', 'RoutesResolver', 'RouterExplorer']);

export interface LoggerOptions {
  level: LogLevel;
  /** `json`: one object per line. `pretty`: for reading in a terminal. */
  format: 'json' | 'pretty';
  redactor: LineRedactor;
}

/**
 * Nest's logger on top of pino. Adds the ids of the current work to each line and redacts secrets.
 * docs/observability.md lists the fields. If a message is an object, its members become fields and its `msg` becomes
 * the text.
 */
export async function createLogger(options: LoggerOptions): Promise<LoggerService> {
  const { level, format, redactor } = options;
  const logger = pino(
    {
      level: LEVELS[level],
      base: { pid: process.pid },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: describeError },
      mixin: idsOfWork,
      hooks: { streamWrite: (line) => redactor.redact(line) },
    },
    format === 'pretty' ? await prettyOutput() : destination({ fd: 1, sync: true }),
  );
  const write = (name: LogLevel, message: unknown, rest: unknown[]): void => {
    const at = LEVELS[name];
    if (logger.isLevelEnabled(at)) logger[at](lineOf(message, rest));
  };
  return {
    fatal: (message: unknown, ...rest: unknown[]) => write('fatal', message, rest),
    error: (message: unknown, ...rest: unknown[]) => write('error', message, rest),
    warn: (message: unknown, ...rest: unknown[]) => write('warn', message, rest),
    log: (message: unknown, ...rest: unknown[]) =>
      write(CHATTY.has(rest.at(-1)) ? 'debug' : 'log', message, rest),
    debug: (message: unknown, ...rest: unknown[]) => write('debug', message, rest),
    verbose: (message: unknown, ...rest: unknown[]) => write('verbose', message, rest),
  };
}

/** Nest passes the message, then an error or its stack, and last the name of the component that logs. */
function lineOf(message: unknown, rest: readonly unknown[]): object {
  const last = rest.at(-1);
  const context = typeof last === 'string' ? last : undefined;
  const error = [message, ...(context === undefined ? rest : rest.slice(0, -1))].find(
    (part) => part instanceof Error,
  );
  const said =
    message instanceof Error
      ? { msg: message.message }
      : typeof message === 'object' && message !== null
        ? message
        : { msg: String(message) };
  return { context, ...said, ...(error ? { err: error } : {}) };
}

function idsOfWork(): object {
  const { requestId, userId, sessionId, turnId, traceparent } = currentWork();
  return {
    request_id: requestId,
    user_id: userId,
    session_id: sessionId,
    turn_id: turnId,
    trace_id: traceparent?.slice(3, 35),
  };
}

/** Loaded only when the format is `pretty`. */
async function prettyOutput(): Promise<DestinationStream> {
  const { default: pretty } = await import('pino-pretty');
  return pretty({
    destination: 1,
    sync: true,
    colorize: process.stdout.isTTY,
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid,context,method,route,path,status,duration_ms',
    messageFormat: '{if context}[{context}] {end}{msg}',
  });
}
