import { spawn } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { NODE, ROOT } from '../../scripts/lib/project.mjs';
import { tree } from './processes.mjs';
import { apiClient } from './subjects.mjs';

const START_LIMIT_MS = 60_000;
const INSPECTOR_TALK = /^(For help, see: |Debugger (attached|ending)|Waiting for the debugger)/;

/**
 * Starts the built service as in a deployment, with its own PostgreSQL, in a temporary folder.
 * @param options `inspect`: with Node's inspector, at `inspectorUrl`.
 */
export async function startService({ env = {}, profile, inspect = false } = {}) {
  const dataDir = await mkdtemp(join(tmpdir(), 'bench-'));
  // The users of sandboxes must be able to enter this folder.
  await chmod(dataDir, 0o755);
  const nodeFlags = profile ? ['--cpu-prof', `--cpu-prof-dir=${profile}`] : [];
  if (inspect) nodeFlags.push('--inspect=127.0.0.1:0');
  const child = spawn(
    NODE,
    [...nodeFlags, '--enable-source-maps', join(ROOT, 'dist/src/main.js')],
    {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', inspect ? 'pipe' : 'inherit'],
      env: {
        ...process.env,
        PORT: '0',
        HOST: '127.0.0.1',
        DATA_DIR: dataDir,
        LOG_LEVEL: 'log',
        SESSION_LIMIT: '1000000',
        ...env,
      },
    },
  );
  const ended = new Promise((resolve) => child.once('close', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    await rm(dataDir, { recursive: true, force: true });
  };
  try {
    const inspector = inspect && inspectorOf(child);
    const { url, token } = await firstWords(child);
    const client = apiClient(url, token);
    const agent = { name: 'bench', provider: 'shell', model: 'shell/bash' };
    const { id: agentId } = await client.post('/agents', agent);
    return {
      ...client,
      agentId,
      pid: child.pid,
      dataDir,
      ...(inspector && { inspectorUrl: await inspector }),
      pids: () => tree(child.pid),
      run: async (prompt, members = {}) =>
        (await client.post('/sessions', { agent_id: agentId, prompt, ...members })).id,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The service's address, and the token of its first user. */
function firstWords(child) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('the service did not start')), START_LIMIT_MS);
    let url;
    child.once('close', (code) => reject(new Error(`the service ended with ${code}`)));
    createInterface({ input: child.stdout }).on('line', (line) => {
      url ??= /Listening on (http:[^\s"]+)/.exec(line)?.[1];
      const token = /^\s*(ast_\w+)\s*$/.exec(line)?.[1];
      if (!token) return;
      clearTimeout(timer);
      resolve({ url, token });
    });
  });
}

/** The inspector's address, which Node prints to standard error; the rest of standard error is forwarded. */
function inspectorOf(child) {
  return new Promise((resolve) => {
    createInterface({ input: child.stderr }).on('line', (line) => {
      const url = /^Debugger listening on (ws:\S+)/.exec(line)?.[1];
      if (url) resolve(url);
      else if (!INSPECTOR_TALK.test(line)) process.stderr.write(`${line}\n`);
    });
  });
}
