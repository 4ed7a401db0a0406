import { styleText } from 'node:util';
import { type Command, Option } from 'commander';
import type { AppConfig } from '../config/app-config.js';
import {
  durationArgument,
  runs,
  urlArgument,
  withExamples,
  exitCodeOf,
  ExitCode,
  tokenOption,
  usageError,
  type CommandOutput,
} from './command-line.js';
import { diagnose, fail, type Finding, ok, skip, type Verdict } from './doctor/finding.js';
import { checkStream } from './doctor/stream-check.js';
import type { Operator } from './operator.js';
import type { OperatorDatabase } from './operator-database.js';

const PARTS = ['database', 'keys', 'sandboxes', 'disk', 'stream'] as const;
type Part = (typeof PARTS)[number];
/** Slightly more than two default heartbeat intervals. */
const SILENCE_SECONDS = 40;
const NAME_WIDTH = 14;

const REMARK = `Run it where the service runs, as its user and with its configuration. It leaves no
changes behind: sandboxes creates a sandbox and tries to access this host from inside; stream (with --url)
runs a session of the token's user, measures how its events arrive, and deletes it.
Parts, for --only: ${PARTS.join(', ')}. The exit code is 7 if a check failed, and 0 if there are only warnings.`;

interface DoctorOptions {
  only?: Part[];
  url?: string;
  token?: string;
  silence: number;
  hold: number;
}

/** `doctor`. */
export function addDoctorCommand(program: Command, operator: Operator): void {
  runs(
    withExamples(
      program
        .command('doctor')
        .description('check everything that the service needs, and suggest fixes')
        .addOption(new Option('--only <parts...>', 'run only these parts').choices(PARTS))
        .option(
          '--url <address>',
          'also run a stream through this address, to detect proxies that buffer, compress or cut it',
          urlArgument,
        )
        .addOption(tokenOption())
        .option(
          '--silence <duration>',
          'how long to wait for a heartbeat on the stream',
          durationArgument,
          SILENCE_SECONDS,
        )
        .option(
          '--hold <duration>',
          'keep the stream open for this long, to find out what closes long connections',
          durationArgument,
          0,
        ),
      [
        'doctor',
        'doctor --json | jq -r \'.findings[] | select(.verdict != "ok")\'',
        'doctor --url https://agents.example.com',
        'doctor --only stream --url https://agents.example.com --hold 10m',
      ],
      REMARK,
    ),
    async (options) => examine(operator, options as DoctorOptions),
  );
}

async function examine(operator: Operator, options: DoctorOptions): Promise<CommandOutput> {
  const { url, token, only } = options;
  if (url !== undefined && !token) {
    throw usageError('--url needs --token or AGENT_SESSIONS_TOKEN');
  }
  if (url === undefined && only?.includes('stream')) throw usageError('stream needs --url');
  const wanted = new Set<Part>(only ?? PARTS);
  const findings: Finding[] = [];
  if (['database', 'keys', 'sandboxes', 'disk'].some((part) => wanted.has(part as Part))) {
    findings.push(...(await examineHost(operator, wanted)));
  }
  if (wanted.has('stream') && url !== undefined && token) {
    const { silence: silenceSeconds, hold: holdSeconds } = options;
    findings.push(...(await checkStream({ url, token, silenceSeconds, holdSeconds })));
  }
  const count = (verdict: Verdict) =>
    findings.filter((finding) => finding.verdict === verdict).length;
  const summary = {
    ok: count('ok'),
    warn: count('warn'),
    fail: count('fail'),
    skip: count('skip'),
  };
  return {
    json: { ...summary, findings },
    text: [
      ...findings.map(shown),
      '',
      `${summary.ok} ok, ${summary.warn} warnings, ${summary.fail} failed, ${summary.skip} skipped`,
    ].join('\n'),
    exitCode: summary.fail > 0 ? ExitCode.unsound : ExitCode.done,
  };
}

/** All checks except for the stream, which needs no configuration. */
async function examineHost(operator: Operator, wanted: ReadonlySet<Part>): Promise<Finding[]> {
  let config: AppConfig;
  try {
    config = operator.readConfig();
  } catch (error) {
    return [await diagnose('configuration', () => Promise.reject(error), 'correct the variable')];
  }
  const findings: Finding[] = [{ check: 'configuration', ...ok('The configuration is valid') }];
  const { checkDisk } = await import('./doctor/host-checks.js');
  const { resolveDatabase, withUnmigratedDatabase } = await import('./operator-database.js');
  if (wanted.has('disk')) findings.push(...(await checkDisk(config)));
  try {
    const address = await resolveDatabase(config);
    findings.push(
      ...(await withUnmigratedDatabase(config, address, (database) =>
        examineWith(database, wanted),
      )),
    );
  } catch (error) {
    const advice =
      exitCodeOf(error) === ExitCode.unreachable
        ? 'check that the server runs and that DATABASE_URL (or DATA_DIR, if the service runs its own PostgreSQL) points to it'
        : 'see the message';
    findings.push(await diagnose('database', () => Promise.reject(error), advice));
    if (wanted.has('keys')) findings.push({ check: 'keys', ...skip('needs the database') });
    if (wanted.has('sandboxes')) findings.push(...(await sandboxes(config)));
  }
  return findings;
}

async function examineWith(
  database: OperatorDatabase,
  wanted: ReadonlySet<Part>,
): Promise<Finding[]> {
  const { checkDatabase } = await import('./doctor/database-checks.js');
  const { checkKeys } = await import('./doctor/host-checks.js');
  const findings = await checkDatabase(database);
  const migrated = findings.some(
    ({ check, verdict }) => check === 'migrations' && verdict !== 'fail',
  );
  const asked = wanted.has('database')
    ? findings
    : findings.filter(({ verdict }) => verdict === 'fail');
  if (wanted.has('keys')) {
    asked.push(
      migrated
        ? await diagnose('keys', () => checkKeys(database), 'see ENCRYPTION_KEYS in the README')
        : { check: 'keys', ...skip('needs the schema') },
    );
  }
  if (wanted.has('sandboxes')) {
    asked.push(...(await sandboxes(database.config, migrated ? database : undefined)));
  }
  return asked;
}

async function sandboxes(config: AppConfig, database?: OperatorDatabase): Promise<Finding[]> {
  try {
    const { checkSandboxes } = await import('./doctor/isolation-check.js');
    return await checkSandboxes(config, database?.sql);
  } catch (error) {
    return [
      {
        check: 'driver',
        ...fail(
          error instanceof Error ? error.message : String(error),
          'see SANDBOX_DRIVER in the README',
        ),
      },
    ];
  }
}

const STYLES = { ok: 'green', warn: 'yellow', fail: 'red', skip: 'dim' } as const;

function shown({ check, verdict, message, advice }: Finding): string {
  const mark = styleText(STYLES[verdict], verdict.padEnd(4), { stream: process.stdout });
  const line = `${mark}  ${check.padEnd(NAME_WIDTH)} ${message}`;
  return advice === undefined ? line : `${line}\n      ${''.padEnd(NAME_WIDTH)} → ${advice}`;
}
