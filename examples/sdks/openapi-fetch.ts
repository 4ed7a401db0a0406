// A tour of openapi-fetch with the types of openapi-typescript; see docs/sdks.md. Prints its results as JSON.
import { gunzipSync } from 'node:zlib';
import createClient from 'openapi-fetch';
import { readFrames } from '../events/follow-session.js';
import type { components, paths } from './generated/openapi-types.js';

type Schemas = components['schemas'];

const {
  BASE_URL: baseUrl = 'http://127.0.0.1:8080',
  ACCESS_TOKEN = '',
  REPOSITORY_URL = 'https://github.com/octocat/Hello-World.git',
} = process.env;
const client = createClient<paths>({
  baseUrl,
  headers: { authorization: `Bearer ${ACCESS_TOKEN}` },
});

const shell = { name: 'Tour', provider: 'shell', model: 'shell/bash' };

/**
 * Reads up to the end of the latest turn. followSession() in the file of readFrames() also handles silent connections.
 */
async function follow(id: string, after: number) {
  let cursor = after;
  let output = '';
  for (;;) {
    try {
      const { data: body, response } = await client.GET('/sessions/{id}/stream', {
        params: { path: { id }, header: { 'Last-Event-ID': cursor } },
        parseAs: 'stream',
      });
      // 5xx: the service or a proxy is restarting. Other errors are permanent.
      if (response.status >= 400 && response.status < 500) throw new Refused(`${response.status}`);
      if (!body) throw new Error(`${response.status}`);
      for await (const frame of readFrames(body)) {
        if (frame.id !== undefined) cursor = Number(frame.id);
        const event = JSON.parse(frame.data) as Schemas['SessionEvent'];
        if (event.type === 'output' && event.stream === 'stdout') output += event.data;
        else if (event.type === 'exit') return { output, code: event.code, last: cursor };
        else if (event.type === 'error' || event.type === 'terminated') {
          throw new Refused(event.message);
        }
      }
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

class Refused extends Error {}

/** Returns the response's data, or throws its error. */
function need<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

/** Uploads bytes of every value, and reads them in all ways. The session has changed its repository. */
async function useFiles(id: string) {
  const path = { id };
  const query = { path: 'data/all bytes.bin' };
  const bytes = Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 7) % 256));
  const parseAs = 'arrayBuffer';
  const written = need(
    await client.PUT('/sessions/{id}/files/content', {
      params: { path, query: { ...query, mode: '0600' } },
      // The types call bytes a string. Without a serializer, the client would send them as JSON.
      body: bytes as unknown as string,
      bodySerializer: (body) => body,
      headers: { 'Content-Type': 'application/octet-stream' },
    }),
  );
  const listed = need(
    await client.GET('/sessions/{id}/files', { params: { path, query: { path: 'data' } } }),
  );
  const content = '/sessions/{id}/files/content';
  const whole = need(await client.GET(content, { params: { path, query }, parseAs }));
  const header = { Range: 'bytes=100-299' };
  const part = await client.GET(content, { params: { path, query, header }, parseAs });
  const archive = need(
    await client.GET('/sessions/{id}/files/archive', {
      params: { path, query: { path: 'data', format: 'tar.gz' } },
      parseAs,
    }),
  );
  const changes = need(await client.GET('/sessions/{id}/changes', { params: { path } }));
  const patch = need(
    await client.GET('/sessions/{id}/changes/patch', { params: { path }, parseAs }),
  );
  need(await client.DELETE('/sessions/{id}/files', { params: { path, query } }));
  const gone = await client.GET(content, { params: { path, query }, parseAs });
  return {
    written: [written.path, written.size, written.mode],
    listed: listed.data.map((file) => [file.path, file.type, file.size]),
    whole: bytes.equals(Buffer.from(whole)),
    part: [part.response.status, bytes.subarray(100, 300).equals(Buffer.from(need(part)))],
    archived: gunzipSync(archive).includes(bytes),
    changes: changes.data.map(({ mount_path, files }) => [
      mount_path,
      ...files.map((file) => [file.path, file.status]),
    ]),
    patched: Buffer.from(patch).includes(Buffer.from('+caf\xe9\n', 'latin1')),
    gone: [gone.response.status, gone.error?.detail],
  };
}

/** Reads both forms of a 422: a list of invalid fields, or a sentence. */
const reasonOf = ({ detail }: Schemas['Unprocessable']): string | string[] =>
  typeof detail === 'string' ? detail : detail.map(({ loc, type }) => `${loc.join('.')} ${type}`);

const environment = need(
  await client.POST('/environments', {
    body: { name: 'Tour', env_vars: { GREETING: 'hello' }, networking: { type: 'unrestricted' } },
  }),
);
const agent = need(
  await client.POST('/agents', { body: { ...shell, environment_id: environment.id } }),
);

const { name: _, ...nameless } = shell;
const missing = await client.POST('/agents', { body: nameless as Schemas['CreateAgentRequest'] });
const mismatch = await client.POST('/agents', { body: { ...shell, model: 'gpt-5' } });
const path = { id: agent.id };
const conflict = await client.PUT('/agents/{id}', {
  params: { path },
  body: { version: 7, name: 'New' },
});

const sleep = { agent_id: agent.id, prompt: 'sleep 600' };
const long = need(await client.POST('/sessions', { body: sleep }));
const limit = await client.POST('/sessions', { body: { agent_id: agent.id, prompt: 'exit 0' } });
const terminate = () =>
  client.POST('/sessions/{id}/terminate', { params: { path: { id: long.id } } });
need(await terminate());
const ended = await terminate();

const start = () =>
  client.POST('/sessions', {
    // Makes it safe to retry the request after a lost response.
    params: { header: { 'Idempotency-Key': `tour-${agent.id}` } },
    body: {
      agent_id: agent.id,
      prompt: 'for i in $(seq 20); do echo "$GREETING $i"; sleep 0.05; done',
      resources: [{ type: 'git_repository', url: REPOSITORY_URL, mount_path: 'app' }],
    },
  });
const session = need(await start());
const repeated = need(await start());

const first = await follow(session.id, 0);
const params = { path: { id: session.id } };
const prompt = String.raw`echo again; printf '\ncaf\351\n' >>app/README`;
need(await client.POST('/sessions/{id}/prompt', { params, body: { prompt } }));
const second = await follow(session.id, first.last);
const turns = need(await client.GET('/sessions/{id}/turns', { params }));

process.stdout.write(
  JSON.stringify({
    keys: environment.env_var_keys,
    missing: missing.response.status === 422 && reasonOf(missing.error as Schemas['Unprocessable']),
    mismatch:
      mismatch.response.status === 422 && reasonOf(mismatch.error as Schemas['Unprocessable']),
    conflict: [conflict.response.status, conflict.error?.detail],
    repeated: repeated.id === session.id,
    limit: [limit.response.status, limit.error],
    outputs: [first.output, second.output],
    codes: [first.code, second.code],
    turns: turns.data.map(({ turn_number, status }) => [turn_number, status]),
    ended: [ended.response.status, ended.error?.detail],
    files: await useFiles(session.id),
  }),
);
