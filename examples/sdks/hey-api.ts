// A tour of the client that @hey-api/openapi-ts generates; docs/sdks.md says how. Prints what it found as JSON.
import { client } from './generated/hey-api/client.gen.js';
import {
  type CreateAgentRequest,
  createAgent,
  createEnvironment,
  createSession,
  listSessionTurns,
  promptSession,
  streamSession,
  terminateSession,
  type Unprocessable,
  updateAgent,
} from './generated/hey-api/index.js';

const { BASE_URL = 'http://127.0.0.1:8080', ACCESS_TOKEN = '' } = process.env;
client.setConfig({ baseUrl: BASE_URL, auth: ACCESS_TOKEN });

const shell = { name: 'Tour', provider: 'shell', model: 'shell/bash' };

/** Reads up to the end of the latest turn. The client resumes by itself when a connection breaks, not when one ends. */
async function follow(id: string, after: number) {
  let last = after;
  let output = '';
  for (;;) {
    const { stream } = await streamSession({
      path: { id },
      headers: { 'Last-Event-ID': last },
      sseDefaultRetryDelay: 250,
      sseMaxRetryDelay: 2_000,
      // It would try a 404 for ever.
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

/** Both shapes of a 422: the fields that are wrong, or a sentence. */
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
    },
    // Makes it safe to send the request again when its answer was lost.
    headers: { 'Idempotency-Key': `tour-${agent.id}` },
    throwOnError: true,
  });
const { data: session } = await start();
const { data: repeated } = await start();

const first = await follow(session.id, 0);
await promptSession({
  path: { id: session.id },
  body: { prompt: 'echo again' },
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
  }),
);
