import { once } from 'node:events';
import { styleText } from 'node:util';
import type { Command } from 'commander';
import { isUuid } from '../common/uuid.js';
import { notFound } from '../common/errors.js';
import { tokenOption, usageError } from './client-options.js';
import { cursorArgument, urlArgument, withExamples } from './command-line.js';
import { ExitCode } from './exit-codes.js';
import { EventPrinter } from './follow/event-printer.js';
import { follow } from './follow/follow.js';
import type { SessionStreamEvent } from './follow/read-events.js';
import { databaseSource, serviceSource, type StreamSource } from './follow/stream-source.js';
import { type Operator, withDatabase } from './operator-database.js';
import { operationsOn } from './operations-on.js';

const EXAMPLE_ID = '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10';
const REMARK = `Goes on by itself after a disconnect, and waits through silences. Ends with the turn that is the latest:
exit code 0 if its runtime exited with 0, else 7. Colours follow NO_COLOR and FORCE_COLOR.
Reads the database, so that sessions of all users can be followed; with --url it is a client of the
service like any other, and the session must belong to the token's user.`;

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
      .description("watch a session's stages and output live")
      .option('--since <id>', 'only what comes after the event with this id', cursorArgument, 0)
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
    await withDatabase(operator.readConfig(), async (database) => {
      const { user_id: userId } = await operationsOn(database.sql).find(id);
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
      // Who reads slowly is not read ahead of.
      if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain');
    }
    return last?.type === 'exit' && last.code === 0 ? ExitCode.done : ExitCode.unsound;
  } finally {
    await source.close();
  }
}
