import { once } from 'node:events';
import type { Command } from 'commander';
import type { ChangeList, RepositoryChangesObject } from '../files/dto/change.dto.js';
import {
  type CommandOutput,
  countArgument,
  ExitCode,
  runs,
  table,
  withExamples,
} from './command-line.js';
import { callsService, ServiceClient, type ServiceOptions } from './service-client.js';

const EXAMPLE_ID = '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10';
const SHORT_SHA = 12;

interface ChangesOptions extends ServiceOptions {
  turn?: number;
  patch?: boolean;
  repository?: string;
  json?: boolean;
}

/** `changes`. */
export function addChangesCommand(program: Command): void {
  const command = withExamples(
    callsService(
      program
        .command('changes <session>')
        .description(
          'show how the repositories of a session differ from the commits they began with',
        )
        .option(
          '--turn <n>',
          'at the end of this turn, also when the sandbox is gone',
          countArgument,
        )
        .option('--patch', 'print a patch for git apply')
        .option('--repository <mount path>', 'which repository, if there are several'),
    ),
    [
      `changes ${EXAMPLE_ID}`,
      `changes ${EXAMPLE_ID} --turn 2 --json`,
      `changes ${EXAMPLE_ID} --patch --repository app | git apply`,
    ],
    'The exit code is 7 if the patch was cut because it is too long.',
  );
  runs(command, (options, session = '') => {
    const chosen = options as ChangesOptions;
    return chosen.patch ? printPatch(session, chosen) : listChanges(session, chosen);
  });
}

async function listChanges(session: string, options: ChangesOptions): Promise<CommandOutput> {
  const client = new ServiceClient(options);
  const answer = await client.call(session, '/changes', { turn: options.turn?.toString() });
  const { data } = (await answer.json()) as ChangeList;
  const chosen = data.filter(
    ({ mount_path: path }) => options.repository === undefined || options.repository === path,
  );
  return { json: { data: chosen }, text: chosen.map(described).join('\n\n') || 'No repositories' };
}

function described({
  mount_path: path,
  base_sha: base,
  head_sha: head,
  files,
}: RepositoryChangesObject): string {
  const short = (sha: string | null) => sha?.slice(0, SHORT_SHA) ?? 'none';
  const title = `${path}: base ${short(base)}, commit ${short(head)}`;
  if (files.length === 0) return `${title}, no changes`;
  const rows = files.map(
    ({ status, additions, deletions, path: name, previous_path: previous }) => [
      status,
      additions,
      deletions,
      previous === null ? name : `${previous} → ${name}`,
    ],
  );
  return `${title}\n${table(['STATUS', 'ADDED', 'DELETED', 'PATH'], rows)}`;
}

async function printPatch(session: string, options: ChangesOptions): Promise<CommandOutput> {
  const client = new ServiceClient(options);
  const query = { turn: options.turn?.toString(), mount_path: options.repository };
  const response = await client.call(session, '/changes/patch', query);
  for await (const part of response.body ?? []) {
    if (!process.stdout.write(part)) await once(process.stdout, 'drain');
  }
  const isCut = response.headers.get('x-patch-truncated') === 'true';
  if (isCut) process.stderr.write('warning: the patch was cut because it is too long\n');
  return { json: {}, text: '', isSilent: true, exitCode: isCut ? ExitCode.unsound : ExitCode.done };
}
