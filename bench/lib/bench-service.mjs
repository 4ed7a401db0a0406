import { spawn } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { NODE, ROOT } from '../../scripts/lib/project.mjs';

const START_LIMIT_MS = 60_000;

/** The built service with its own PostgreSQL, in a folder of its own that goes with it. */
export async function startBenchService() {
  const dataDir = await mkdtemp(join(tmpdir(), 'bench-'));
  // The users of sandboxes pass through it.
  await chmod(dataDir, 0o755);
  const child = spawn(NODE, [join(ROOT, 'dist', 'src', 'main.js')], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, PORT: '0', HOST: '127.0.0.1', DATA_DIR: dataDir, LOG_LEVEL: 'log' },
  });
  const ended = new Promise((resolve) => child.once('close', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    await rm(dataDir, { recursive: true, force: true });
  };
  try {
    const { url, token } = await firstWords(child);
    return client(url, token, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Where it listens, and the token of its first user. */
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

function client(url, token, stop) {
  const authorization = `Bearer ${token}`;
  const post = async (path, body) => {
    const response = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json' },
      body: body && JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`POST ${path}: ${JSON.stringify(answer)}`);
    return answer;
  };
  /** Reads the session's stream to its end. @returns when its first output came, by the monotonic clock. */
  const firstOutputAt = async (id) => {
    const response = await fetch(`${url}/sessions/${id}/stream`, { headers: { authorization } });
    let text = '';
    let at;
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      if (at === undefined && text.includes('"type":"output"')) at = performance.now();
    }
    if (at === undefined || !text.includes('"type":"exit"'))
      throw new Error(`the session did not end well:\n${text}`);
    return at;
  };
  return { post, firstOutputAt, stop };
}
