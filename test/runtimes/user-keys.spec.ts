import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { runCli } from '../support/cli.js';
import { query } from '../support/service.js';
import { MODEL_KEY } from './model-endpoint/model-endpoint.js';
import { CLIS, describeCli } from './support/clis.js';
import { Rig } from './support/rig.js';

const WRONG_KEY = 'operators-own-key-0123456789';
const LIMIT_MS = 300_000;

let rig: Rig;
beforeAll(async () => {
  // The model refuses the operator's key for Anthropic, and there is none for the others.
  rig = await Rig.start({
    ANTHROPIC_API_KEY: WRONG_KEY,
    OPENAI_API_KEY: undefined,
    GEMINI_API_KEY: undefined,
  });
});
afterAll(() => rig.stop());

async function userKey(action: string, provider: string): Promise<void> {
  const { databaseUrl, dataDir, userId } = rig.service;
  const [user] = await query<{ name: string }>(
    databaseUrl,
    'SELECT name FROM users WHERE id = $1',
    [userId],
  );
  const { code, stderr } = await runCli(
    ['user', 'key', action, user?.name ?? '', provider],
    { DATABASE_URL: databaseUrl, DATA_DIR: dataDir },
    MODEL_KEY,
  );
  if (code !== 0) throw new Error(stderr);
}

for (const cli of CLIS) {
  const { provider, model } = cli;
  const api = provider === 'opencode' ? 'anthropic' : provider;
  describeCli(cli, () => {
    test(
      "works with the user's own key, which no sandbox has, until the key is removed",
      async () => {
        await userKey('set', api);
        const session = await rig.session(
          { provider, model },
          [
            `word-own-${provider} %%shell echo the key ${MODEL_KEY};`,
            `grep -qsa ${MODEL_KEY} ~/.session/env /proc/[0-9]*/environ && echo is here || echo is nowhere%%`,
          ].join(' '),
        );
        const { terminal, output } = await rig.finish(session);
        expect(terminal).toMatchObject({ type: 'exit', code: 0 });
        expect(output).not.toContain(MODEL_KEY);
        expect(output).toMatch(/the key \[redacted\](\\n|\s)+is nowhere/);
        const requests = rig.model.requests.filter(({ text }) =>
          text.includes(`word-own-${provider}`),
        );
        expect(requests.length).toBeGreaterThan(0);
        expect(requests.every(({ authorized }) => authorized)).toBe(true);

        await userKey('remove', api);
        const answer = await rig.http.post(`/sessions/${session.id}/prompt`, {
          prompt: 'word-removed',
          timeout: 20,
        });
        if (api === 'anthropic') {
          expect(answer.status).toBe(202);
          await rig.finish(session);
          const refused = rig.model.requests.filter(({ text }) => text.includes('word-removed'));
          expect(refused.some(({ authorized }) => authorized)).toBe(false);
        } else {
          expect(answer).toMatchObject({
            status: 400,
            body: { detail: `Provider ${provider} has no API key configured` },
          });
        }
        await rig.remove(session);
      },
      LIMIT_MS,
    );
  });
}
