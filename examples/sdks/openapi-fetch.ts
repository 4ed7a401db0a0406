// A tour of openapi-fetch with the types of openapi-typescript; docs/sdks.md says how. Prints what it found as JSON.
import createClient from 'openapi-fetch';
import { readFrames } from '../events/follow-session.js';
import type { components, paths } from './generated/openapi-types.js';

type Schemas = components['schemas'];

const { BASE_URL: baseUrl = 'http://127.0.0.1:8080', ACCESS_TOKEN = '' } = process.env;
const client = createClient<paths>({
  baseUrl,
  headers: { authorization: `Bearer ${ACCESS_TOKEN}` },
});

const shell = { name: 'Tour', provider: 'shell', model: 'shell/bash' };

/** Reads up to the end of the latest turn. followSession() in the file of readFrames() also copes with silence. */
async function follow(id: string, after: number) {
  let cursor = after;
  let output = '';
  for (;;) {
    try {
      const { data: body, response } = await client.GET('/sessions/{id}/stream', {
        params: { path: { id }, header: { 'Last-Event-ID': cursor } },
        parseAs: 'stream',
      });
      // 5xx: the service or a proxy is restarting. Anything else stays as it is.
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

/** What was asked for, or the refusal as an exception. */
function need<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

/** Both shapes of a 422: the fields that are wrong, or a sentence. */
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
    // Makes it safe to send the request again when its answer was lost.
    params: { header: { 'Idempotency-Key': `tour-${agent.id}` } },
    body: {
      agent_id: agent.id,
      prompt: 'for i in $(seq 20); do echo "$GREETING $i"; sleep 0.05; done',
    },
  });
const session = need(await start());
const repeated = need(await start());

const first = await follow(session.id, 0);
const params = { path: { id: session.id } };
need(await client.POST('/sessions/{id}/prompt', { params, body: { prompt: 'echo again' } }));
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
  }),
);
