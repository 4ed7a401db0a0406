// A tour of the client that @hey-api/openapi-ts generates; see docs/sdks.md. Prints its results as JSON.
import { gunzipSync } from 'node:zlib';
import { client } from './generated/hey-api/client.gen.js';
import {
  archiveSessionFiles,
  type CreateAgentRequest,
  createAgent,
  createEnvironment,
  createSession,
  deleteSessionFile,
  listSessionChanges,
  listSessionFiles,
  listSessionTurns,
  promptSession,
  readSessionFile,
  readSessionPatch,
  streamSession,
  terminateSession,
  type Unprocessable,
  updateAgent,
  writeSessionFile,
} from './generated/hey-api/index.js';

const {
  BASE_URL = 'http://127.0.0.1:8080',
  ACCESS_TOKEN = '',
  REPOSITORY_URL = 'https://github.com/octocat/Hello-World.git',
} = process.env;
client.setConfig({ baseUrl: BASE_URL, auth: ACCESS_TOKEN });

const shell = { name: 'Tour', provider: 'shell', model: 'shell/bash' };

/** Reads up to the end of the latest turn. The client resumes by itself if a connection breaks, but not if it ends. */
async function follow(id: string, after: number) {
  let last = after;
  let output = '';
  for (;;) {
    const { stream } = await streamSession({
      path: { id },
      headers: { 'Last-Event-ID': last },
      sseDefaultRetryDelay: 250,
      sseMaxRetryDelay: 2_000,
      // Otherwise it would retry a 404 forever.
      onSseError: (error) => {
        if (String(error).startsWith('Error: SSE failed: 4')) throw error;
      },
      onSseEvent: ({ id: line }) => {
        if (line !== undefined) last = Number(line);
      },
    });
    for await (const event of stream) {
      if (event.type === 'output' && event.stream === 'stdout') output += event.data;
      else if (event.type === 'exit') return { output, code: event.code, last };
      else if (event.type === 'error' || event.type === 'terminated') {
        throw new Error(event.message);
      }
    }
  }
}

/** Uploads bytes of every value, and reads them in all ways. The session has changed its repository. */
async function useFiles(id: string) {
  const of = { path: { id }, throwOnError: true } as const;
  const query = { path: 'data/all bytes.bin' };
  const bytes = Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 7) % 256));
  const bytesOf = async (body: Blob) => Buffer.from(await body.arrayBuffer());
  const written = await writeSessionFile({
    ...of,
    query: { ...query, mode: '0600' },
    body: new Blob([bytes]),
  });
  const listed = await listSessionFiles({ ...of, query: { path: 'data' } });
  const whole = await readSessionFile({ ...of, query });
  const part = await readSessionFile({ ...of, query, headers: { Range: 'bytes=100-299' } });
  const archive = await archiveSessionFiles({ ...of, query: { path: 'data', format: 'tar.gz' } });
  const changes = await listSessionChanges(of);
  // `text/x-diff` would be decoded, but files in a patch may have any encoding.
  const patch = await readSessionPatch({ ...of, parseAs: 'blob' });
  await deleteSessionFile({ ...of, query });
  const gone = await readSessionFile({ path: { id }, query });
  return {
    written: [written.data.path, written.data.size, written.data.mode],
    listed: listed.data.data.map(({ path, type, size }) => [path, type, size]),
    whole: bytes.equals(await bytesOf(whole.data)),
    part: [part.response.status, bytes.subarray(100, 300).equals(await bytesOf(part.data))],
    archived: gunzipSync(await bytesOf(archive.data)).includes(bytes),
    changes: changes.data.data.map(({ mount_path, files }) => [
      mount_path,
      ...files.map(({ path, status }) => [path, status]),
    ]),
    patched: (await bytesOf(patch.data)).includes(Buffer.from('+caf\xe9\n', 'latin1')),
    gone: [gone.response?.status, gone.error?.detail],
  };
}

/** Reads both forms of a 422: a list of invalid fields, or a sentence. */
const reasonOf = ({ detail }: Unprocessable): string | string[] =>
  typeof detail === 'string' ? detail : detail.map(({ loc, type }) => `${loc.join('.')} ${type}`);

const { data: environment } = await createEnvironment({
  body: { name: 'Tour', env_vars: { GREETING: 'hello' }, networking: { type: 'unrestricted' } },
  throwOnError: true,
});
const { data: agent } = await createAgent({
  body: { ...shell, environment_id: environment.id },
  throwOnError: true,
});

const { name: _, ...nameless } = shell;
const missing = await createAgent({ body: nameless as CreateAgentRequest });
const mismatch = await createAgent({ body: { ...shell, model: 'gpt-5' } });
const conflict = await updateAgent({ path: { id: agent.id }, body: { version: 7, name: 'New' } });

const { data: long } = await createSession({
  body: { agent_id: agent.id, prompt: 'sleep 600' },
  throwOnError: true,
});
const limit = await createSession({ body: { agent_id: agent.id, prompt: 'exit 0' } });
await terminateSession({ path: { id: long.id }, throwOnError: true });
const ended = await terminateSession({ path: { id: long.id } });

const start = () =>
  createSession({
    body: {
      agent_id: agent.id,
      prompt: 'for i in $(seq 20); do echo "$GREETING $i"; sleep 0.05; done',
      resources: [{ type: 'git_repository', url: REPOSITORY_URL, mount_path: 'app' }],
    },
    // Makes it safe to retry the request after a lost response.
    headers: { 'Idempotency-Key': `tour-${agent.id}` },
    throwOnError: true,
  });
const { data: session } = await start();
const { data: repeated } = await start();

const first = await follow(session.id, 0);
await promptSession({
  path: { id: session.id },
  body: { prompt: String.raw`echo again; printf '\ncaf\351\n' >>app/README` },
  throwOnError: true,
});
const second = await follow(session.id, first.last);
const { data: turns } = await listSessionTurns({ path: { id: session.id }, throwOnError: true });

process.stdout.write(
  JSON.stringify({
    keys: environment.env_var_keys,
    missing: missing.response?.status === 422 && reasonOf(missing.error as Unprocessable),
    mismatch: mismatch.response?.status === 422 && reasonOf(mismatch.error as Unprocessable),
    conflict: [conflict.response?.status, conflict.error?.detail],
    repeated: repeated.id === session.id,
    limit: [limit.response?.status, limit.error],
    outputs: [first.output, second.output],
    codes: [first.code, second.code],
    turns: turns.data.map(({ turn_number, status }) => [turn_number, status]),
    ended: [ended.response?.status, ended.error?.detail],
    files: await useFiles(session.id),
  }),
);
