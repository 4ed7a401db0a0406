import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { posix } from 'node:path';
import type { Machine } from './vm.js';

/** Says of a path what the interface does, one entry a line: type, mode, size, time, name. */
const LIST = `
cd / && [ -e "$1" ] || [ -L "$1" ] || exit 44
if [ -d "$1" ] && [ -z "$2" ]; then exec find "$1" -mindepth 1 -maxdepth 1 -printf '%y %m %s %T@ %f\\n'; fi
exec find "$1" -maxdepth 0 -printf '%y %m %s %T@ %f\\n'`;
const WRITE = `
if [ "$2" = true ]; then mkdir -p -- "$(dirname -- "$1")" || exit 13; fi
[ -d "$(dirname -- "$1")" ] || exit 44
cat > "$1" || exit 13
[ -z "$3" ] || chmod "$3" -- "$1"`;
const READ = `[ -e "$1" ] || exit 44; [ -d "$1" ] && exit 21; exec cat -- "$1"`;
const DELETE = `
[ -e "$1" ] || [ -L "$1" ] || exit 44
if [ "$2" = true ]; then exec rm -rf -- "$1"; fi
if [ -d "$1" ] && [ ! -L "$1" ]; then exec rmdir -- "$1"; fi
exec rm -f -- "$1"`;
const COPY = `[ -e "$1" ] || exit 44; exec cp $3 -- "$1" "$2"`;
const RENAME = `[ -e "$1" ] || exit 44; exec mv -T -- "$1" "$2"`;
const CHMOD = `[ -e "$1" ] || exit 44; exec chmod $3 "$2" -- "$1"`;
const CHOWN = `[ -e "$1" ] || exit 44; exec chown $3 "$2" -- "$1"`;

const ERRORS: Readonly<Record<number, readonly [status: number, code: string]>> = {
  44: [404, 'ENOENT'],
  21: [400, 'EISDIR'],
  13: [403, 'EACCES'],
};

interface Change {
  source?: string;
  dest?: string;
  path?: string;
  workingDir?: string;
  mode?: string;
  uid?: number | string;
  gid?: number | string;
  recursive?: boolean;
  asRoot?: boolean;
}

/** Answers the calls about files, with real commands that run as the sprite's default user. */
export async function serveFiles(
  machine: Machine,
  what: string,
  query: URLSearchParams,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const run = async (
    script: string,
    args: readonly string[],
    asRoot = false,
    input?: IncomingMessage,
  ) => {
    const command = ['/bin/sh', '-c', script, 'sh', ...args];
    const child = machine.spawn({ command, root: asRoot });
    child.stdin?.on('error', () => undefined);
    if (input && child.stdin) input.pipe(child.stdin);
    else child.stdin?.end();
    const output: Buffer[] = [];
    child.stdout?.on('data', (data: Buffer) => output.push(data));
    child.stderr?.resume();
    const [code] = (await once(child, 'close')) as [number | null];
    return { code: code ?? 1, output: Buffer.concat(output) };
  };
  const json = (status: number, value: unknown) =>
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
  const settle = ({ code }: { code: number }, path: string, success: unknown) => {
    const [status, name] = ERRORS[code] ?? [400, 'EIO'];
    if (code === 0) json(200, success);
    else json(status, { error: `${name}: ${path}`, code: name, path });
  };

  if (request.method === 'POST') {
    const change = JSON.parse(await textOf(request)) as Change;
    const at = (path = ''): string => posix.resolve(change.workingDir ?? '/', path);
    const recursive = change.recursive ? '-R' : '';
    const owner = `${change.uid ?? ''}${change.gid === undefined ? '' : `:${change.gid}`}`;
    const [script, args] = {
      rename: [RENAME, [at(change.source), at(change.dest)]] as const,
      copy: [COPY, [at(change.source), at(change.dest), recursive]] as const,
      chmod: [CHMOD, [at(change.path), change.mode ?? '', recursive]] as const,
      chown: [CHOWN, [at(change.path), owner, recursive]] as const,
    }[what] ?? [undefined, []];
    if (script === undefined) return void json(404, { error: 'not_found', message: what });
    return settle(await run(script, args, change.asRoot), args[0] ?? '', {});
  }

  const given = query.get('path');
  const workingDir = query.get('workingDir');
  if (given === null || workingDir === null) {
    return void json(400, { error: 'path and workingDir are required', code: 'EINVAL' });
  }
  const path = posix.resolve(workingDir, given);
  const asRoot = query.get('asRoot') === 'true';
  if (request.method === 'PUT' && what === 'write') {
    const options = [query.get('mkdirParents') ?? '', query.get('mode') ?? ''];
    return settle(await run(WRITE, [path, ...options], false, request), path, { path });
  }
  if (request.method === 'DELETE' && what === 'delete') {
    return settle(await run(DELETE, [path, query.get('recursive') ?? ''], asRoot), path, { path });
  }
  if (request.method === 'GET' && what === 'read') {
    const { code, output } = await run(READ, [path]);
    if (code !== 0) return settle({ code }, path, undefined);
    return void response.writeHead(200, { 'Content-Type': 'application/octet-stream' }).end(output);
  }
  if (request.method === 'GET' && what === 'list') {
    const { code, output } = await run(LIST, [path, '']);
    const entries = output.toString('utf8').split('\n').filter(Boolean).map(entryOf);
    return settle({ code }, path, { path, entries, count: entries.length });
  }
  json(404, { error: 'not_found', message: `there is no ${what}` });
}

function entryOf(line: string) {
  const [type = '', mode = '', size = '', time = '', ...name] = line.split(' ');
  return {
    name: name.join(' '),
    type: { d: 'directory', l: 'symlink', f: 'file' }[type] ?? 'other',
    isDir: type === 'd',
    mode: mode.padStart(4, '0'),
    size: Number(size),
    modTime: new Date(Number(time) * 1000).toISOString(),
  };
}

/** The whole body of a request as text. */
export async function textOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString('utf8');
}
