import type { LoggerService, LogLevel } from '@nestjs/common';
import { type DestinationStream, destination, type Level, pino, stdTimeFunctions } from 'pino';
import { currentWork } from '../common/work-context.js';
import { describeError } from './describe-error.js';
import type { LineRedactor } from './line-redactor.js';

/** Nest's names → pino's. */
const LEVELS: Record<LogLevel, Level> = {
  fatal: 'fatal',
  error: 'error',
  warn: 'warn',
  log: 'info',
  debug: 'debug',
  verbose: 'trace',
};

/** Parts of Nest that tell of every module and route; of use only to who looks for a mistake in them. */
const CHATTY = new Set<unknown>(['InstanceLoader', 'RoutesResolver', 'RouterExplorer']);

export interface LoggerOptions {
  level: LogLevel;
  /** `json`: one object a line. `pretty`: for people at a terminal. */
  format: 'json' | 'pretty';
  redactor: LineRedactor;
}

/**
 * Nest's logger on pino: each line with the ids of what it is about, and without secrets. See docs/observability.md for
 * the fields. Messages may be objects, whose members become fields and whose `msg` is the text.
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

/** Nest's arguments: the message, then an error or its stack, and last the name of the part that speaks. */
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

/** Only loaded where it is wanted. */
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
