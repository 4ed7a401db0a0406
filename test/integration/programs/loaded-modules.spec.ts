import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from '@jest/globals';

const BUILT = join(process.cwd(), 'dist/src');
const CLI = join(BUILT, 'cli/main.js');
/** Prints the address of each module that is loaded, one a line, to standard error. */
const LISTS_MODULES = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from 'node:module';
  import { writeSync } from 'node:fs';
  registerHooks({
    load(url, context, next) {
      writeSync(2, 'loaded ' + url + '\\n');
      return next(url, context);
    },
  });
`)}`;
/** What takes most of a second to load, and only commands that use the database need. */
const HEAVY = /\/node_modules\/(@nestjs|typeorm|rxjs|pg|class-validator)\//;

/** Each takes as long to load as everything else that a supervisor needs for a launch. */
const CLIENTS = ['node:http', 'node:https', 'node:http2', 'node:tls'];

async function modulesOf(program: string, ...args: string[]): Promise<string[]> {
  const run = promisify(execFile)(process.execPath, ['--import', LISTS_MODULES, program, ...args], {
    env: { ...process.env, AGENT_SESSIONS_TOKEN: 'none', AGENT_SESSIONS_URL: 'http://127.0.0.1:1' },
  });
  run.child.stdin?.end();
  const { stderr } = await run.catch((error: unknown) => error as { stderr: string });
  return [...stderr.matchAll(/^loaded (.*)$/gm)].map(([, url = '']) => url);
}

it.each([
  ['--help', ['--help']],
  ['the help of a command for the database', ['token', 'create', '--help']],
  ['a mistake in the command line', ['user', 'list', '--unknown']],
  ['a command that calls the service', ['files', 'list', '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10']],
])('loads neither Nest nor the database for %s', async (_what, args) => {
  const modules = await modulesOf(CLI, ...args);
  expect(modules).toContainEqual(expect.stringContaining('/commander/'));
  expect(modules.filter((url) => HEAVY.test(url))).toEqual([]);
});

// Without a request they end with an error, but only after everything was loaded.
it.each([
  ['main', 'supervisor/launch-folder.js'],
  ['strict-runtime', 'supervisor/relay/relay-thread.js'],
  ['plain-runtime', 'supervisor/runtime-process.js'],
  ['supervisor', 'supervisor/spool-reader.js'],
  ['relay/relay-worker', 'gateway/client.js'],
])('loads neither HTTP nor TLS to supervise a launch: %s', async (program, imported) => {
  const modules = await modulesOf(join(BUILT, 'supervisor', `${program}.js`));
  expect(modules).toContainEqual(expect.stringContaining(imported));
  expect(modules.filter((url) => CLIENTS.includes(url))).toEqual([]);
});
