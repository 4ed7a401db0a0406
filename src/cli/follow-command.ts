import { notFound, DomainError } from '../common/errors.js';
import {
  tokenOption,
  usageError,
  cursorArgument,
  urlArgument,
  withExamples,
  ExitCode,
} from './command-line.js';
import type { Operator } from './operator.js';
import { setTimeout as delay } from 'node:timers/promises';
import {
  cursorAfter,
  isTerminal,
  readItems,
  type SessionStreamEvent,
  EventPrinter,
} from './event-printer.js';
import { once } from 'node:events';
import { styleText } from 'node:util';
import type { Command } from 'commander';
import { serviceSource, type StreamSource } from './stream-source.js';
import { isUuid } from '../common/storable.js';

const RETRY_MS = [100, 500, 1_000, 2_000, 5_000];

/**
 * Yields a session's events up to the end of its turn. If the connection breaks, it reconnects and resumes after the
 * last event. It also keeps waiting after a `stale` event.
 * @param onBroken called with the reason each time the connection breaks
 * @throws the error of the first connection; later only errors that reconnecting cannot fix
 */
export async function* follow(
  source: StreamSource,
  from: number,
  onBroken: (reason: string) => void,
): AsyncGenerator<SessionStreamEvent> {
  let cursor = from;
  let connected = false;
  for (let attempt = 0; ; attempt += 1) {
    let reason = 'the stream ended early';
    try {
      for await (const item of readItems(source.open(cursor))) {
        if (item === 'heartbeat') continue;
        attempt = 0;
        if (item.type === 'start' && connected) continue;
        connected = true;
        cursor = cursorAfter(item) ?? cursor;
        yield item;
        if (item.type === 'stale') reason = '';
        else if (isTerminal(item)) return;
      }
    } catch (error) {
      if (!connected || error instanceof DomainError) throw error;
      reason = error instanceof Error ? error.message : String(error);
    }
    if (reason !== '') onBroken(reason);
    await delay(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
  }
}

const EXAMPLE_ID = '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10';
const REMARK = `Reconnects by itself and waits as long as the session is silent. Ends with the latest turn: the exit code
is 0 if its runtime exited with 0, else 7. Colours follow NO_COLOR and FORCE_COLOR.
Reads the database, so that sessions of all users can be followed; with --url it reads the
stream over HTTP, and the session must belong to the token's user.`;

interface FollowOptions {
  since: number;
  url?: string;
  token?: string;
  json?: boolean;
}

/** `sessions follow`. */
export function addFollowCommand(sessions: Command, operator: Operator): void {
  withExamples(
    sessions
      .command('follow <id>')
      .description("follow a session's stages and output live")
      .option('--since <id>', 'only events after the one with this id', cursorArgument, 0)
      .option('--url <address>', 'read the stream of the service at this address', urlArgument)
      .addOption(tokenOption())
      .option('--json', 'print one JSON object for each event'),
    [
      `sessions follow ${EXAMPLE_ID}`,
      `sessions follow ${EXAMPLE_ID} --json | jq -r 'select(.type == "output").data'`,
      `sessions follow ${EXAMPLE_ID} --url https://agents.example.com`,
    ],
    REMARK,
  ).action(async (id: string, options: FollowOptions) => {
    if (!isUuid(id)) throw notFound(`There is no session with the id ${JSON.stringify(id)}`);
    if (options.url !== undefined) {
      const { url, token } = options;
      if (!token) throw usageError('--url needs --token or AGENT_SESSIONS_TOKEN');
      process.exitCode = await print(serviceSource({ url, token, sessionId: id }), options);
      return;
    }
    const config = operator.readConfig();
    const { withDatabase } = await import('./operator-database.js');
    const { databaseSource } = await import('./database-stream.js');
    await withDatabase(config, async (database) => {
      const { user_id: userId } = await database.sessions.find(id);
      const source = databaseSource(database, { id, userId });
      process.exitCode = await print(source, options);
    });
  });
}

async function print(source: StreamSource, { since, json }: FollowOptions): Promise<ExitCode> {
  const printer = new EventPrinter(
    (text) => void process.stdout.write(text),
    (style, text) => styleText(style, text, { stream: process.stdout }),
  );
  const say = json
    ? (event: SessionStreamEvent) => void process.stdout.write(`${JSON.stringify(event)}\n`)
    : (event: SessionStreamEvent) => printer.print(event);
  const onBroken = json
    ? () => undefined
    : (reason: string) => printer.remark(`${reason}; trying again`);
  try {
    let last: SessionStreamEvent | undefined;
    for await (const event of follow(source, since, onBroken)) {
      say(event);
      last = event;
      // Do not read ahead of a slow terminal.
      if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain');
    }
    return last?.type === 'exit' && last.code === 0 ? ExitCode.done : ExitCode.unsound;
  } finally {
    await source.close();
  }
}
