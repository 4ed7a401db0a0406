import { once } from 'node:events';
import { createReadStream, openAsBlob } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { type Command, Option } from 'commander';
import type { FileList, FileObject } from '../files/dto/file.dto.js';
import { countArgument, group, runs, table, Unreachable, withExamples } from './command-line.js';
import { callsService, ServiceClient, type ServiceOptions, unreachable } from './service-client.js';

const EXAMPLE_ID = '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10';
const DEFAULT_LIMIT = 1000;
const PAGE = 1000;
/** How often a download continues without having received a byte in between. */
const ATTEMPTS = 5;

/** `files list`, `files get`, `files put`. */
export function addFileCommands(program: Command): void {
  const files = group(program, 'files', "files in a session's sandbox, also while a turn runs");
  addList(files);
  addGet(files);
  addPut(files);
}

function addList(files: Command): void {
  const command = withExamples(
    callsService(
      files
        .command('list <session> [path]')
        .description('list a folder; default: the workspace')
        .option('--limit <n>', 'the maximum number of entries', countArgument, DEFAULT_LIMIT),
    ),
    [`files list ${EXAMPLE_ID}`, `files list ${EXAMPLE_ID} src --json`],
  );
  runs(command, async (options, session = '', path) => {
    const client = new ServiceClient(options as ServiceOptions);
    const limit = Number(options['limit']);
    const entries: FileObject[] = [];
    let isComplete = limit === 0;
    while (!isComplete && entries.length < limit) {
      const query = {
        path,
        after: entries.at(-1)?.path,
        limit: String(Math.min(PAGE, limit - entries.length)),
      };
      const page = (await (await client.call(session, '/files', query)).json()) as FileList;
      entries.push(...page.data);
      isComplete = !page.has_more || page.data.length === 0;
    }
    const rows = entries.map(({ type, mode, size, modified_at, path: name }) => [
      type,
      mode,
      size,
      modified_at,
      name,
    ]);
    return {
      json: { data: entries, has_more: !isComplete },
      text: table(['TYPE', 'MODE', 'SIZE', 'MODIFIED', 'PATH'], rows),
    };
  });
}

function addGet(files: Command): void {
  const command = withExamples(
    callsService(
      files
        .command('get <session> <path> [target]')
        .description('download a file; - as the target is standard output')
        .addOption(
          new Option('--archive <format>', 'download a folder as an archive').choices([
            'tar.gz',
            'zip',
          ]),
        ),
    ),
    [
      `files get ${EXAMPLE_ID} report.pdf`,
      `files get ${EXAMPLE_ID} src/main.ts - | less`,
      `files get ${EXAMPLE_ID} . workspace.zip --archive zip`,
    ],
    'A download that breaks off continues where it was, unless the file has changed.',
  );
  runs(command, async (options, session = '', path = '', target) => {
    const client = new ServiceClient(options as ServiceOptions);
    const format = options['archive'] as string | undefined;
    const extension = format === undefined ? '' : `.${format}`;
    const name = target ?? `${basename(path)}${extension}`;
    const read = (headers: Record<string, string>) =>
      format === undefined
        ? client.call(session, '/files/content', { path }, { headers })
        : client.call(session, '/files/archive', { path, format });
    const url = String(options['url']);
    const bytes = await (name === '-'
      ? toStandardOutput(await read({}), url)
      : toFile(name, (file) => download(read, file, { url, canContinue: format === undefined })));
    if (name === '-') return { json: {}, text: '', isSilent: true };
    return { json: { target: name, bytes }, text: `Wrote ${bytes} bytes to ${name}` };
  });
}

function addPut(files: Command): void {
  const command = withExamples(
    callsService(
      files
        .command('put <session> <source> [path]')
        .description('upload a file; - as the source is standard input')
        .option('--mode <mode>', 'its permissions in octal notation, such as 0755'),
    ),
    [
      `files put ${EXAMPLE_ID} data.csv input/data.csv`,
      `files put ${EXAMPLE_ID} run.sh --mode 0755`,
    ],
  );
  runs(command, async (options, session = '', source = '', path = basename(source)) => {
    const client = new ServiceClient(options as ServiceOptions);
    const body =
      source === '-'
        ? (Readable.toWeb(createReadStream('', { fd: 0 })) as ReadableStream<Uint8Array>)
        : await openAsBlob(source);
    const query = { path, mode: options['mode'] as string | undefined };
    const init = { method: 'PUT', body, duplex: 'half' } as const;
    const file = (await (
      await client.call(session, '/files/content', query, init)
    ).json()) as FileObject;
    return { json: file, text: `Wrote ${file.size} bytes to ${file.path}` };
  });
}

/** Writes to a file beside the target, which gets its name when it is complete. */
async function toFile(
  target: string,
  write: (file: FileHandle) => Promise<number>,
): Promise<number> {
  const draft = `${target}.${process.pid}.part`;
  const file = await open(draft, 'wx');
  try {
    const bytes = await write(file);
    await rename(draft, target);
    return bytes;
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

/** Downloads until the end, and continues after the last byte when the connection breaks. */
async function download(
  read: (headers: Record<string, string>) => Promise<Response>,
  file: FileHandle,
  { url, canContinue }: { url: string; canContinue: boolean },
): Promise<number> {
  let bytes = 0;
  let tag: string | undefined;
  for (let failures = 0; ;) {
    try {
      const range: Record<string, string> =
        bytes > 0 && tag ? { range: `bytes=${bytes}-`, 'if-range': tag } : {};
      const response = await read(range);
      // The file has changed: from the beginning.
      if (response.status !== 206) bytes = 0;
      tag = response.headers.get('etag') ?? undefined;
      await file.truncate(bytes);
      for await (const part of response.body ?? []) {
        await file.write(part, 0, part.length, bytes);
        bytes += part.length;
        failures = 0;
      }
      return bytes;
    } catch (error) {
      // What the service refuses, it refuses again.
      const isBroken = error instanceof TypeError || error instanceof Unreachable;
      failures += 1;
      if (!isBroken || !canContinue || failures === ATTEMPTS) {
        throw error instanceof TypeError ? unreachable(url, error) : error;
      }
      await new Promise((resolve) => setTimeout(resolve, 200 * failures));
    }
  }
}

async function toStandardOutput(response: Response, url: string): Promise<number> {
  let bytes = 0;
  try {
    for await (const part of response.body ?? []) {
      bytes += part.length;
      if (!process.stdout.write(part)) await once(process.stdout, 'drain');
    }
  } catch (error) {
    throw unreachable(url, error);
  }
  return bytes;
}
