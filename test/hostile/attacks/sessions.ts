import { setTimeout as delay } from 'node:timers/promises';
import type { Attack } from '../attack.js';
import { Answers, type Mallory } from '../mallory.js';

/** Ids of sessions that were accepted; what else was said is counted. */
async function startMany(
  mallory: Mallory,
  count: number,
  prompt: string,
  answers: Answers,
): Promise<string[]> {
  const agent_id = await mallory.agent();
  const started = await Promise.all(
    Array.from({ length: count }, async () => {
      const body = { agent_id, prompt, timeout: 60 };
      const answer = await mallory.request('POST', '/sessions', body);
      answers.add(answer);
      return answer.status === 202 ? [String(answer.body['id'])] : [];
    }),
  );
  return started.flat();
}

async function removeAll(mallory: Mallory, ids: readonly string[]): Promise<void> {
  await Promise.all(ids.map((id) => mallory.remove(id)));
}

export const SESSION_ATTACKS: readonly Attack[] = [
  {
    name: 'all-slots',
    what: '50 sessions that only wait, which is more than the worker has places',
    expected: /429 \(.*limit/i,
    run: async (mallory) => {
      const answers = new Answers();
      const ids = await startMany(mallory, 50, 'sleep 300', answers);
      await delay(14_000 * mallory.pace, undefined, { signal: mallory.signal }).catch(
        () => undefined,
      );
      await removeAll(mallory, ids);
      return answers.toString();
    },
  },
  {
    name: 'retained-sandboxes',
    what: '60 sessions of a moment, whose sandboxes are kept',
    expected: /^\d+ of \d+ completed/,
    run: async (mallory) => {
      const answers = new Answers();
      const all: string[] = [];
      let completed = 0;
      for (let batch = 0; batch < Math.ceil(10 * mallory.pace); batch += 1) {
        const ids = await startMany(mallory, 6, 'echo kept > kept', answers);
        all.push(...ids);
        for (const id of ids) {
          const { terminal } = await mallory.follow(id);
          if (terminal?.type === 'exit') completed += 1;
        }
      }
      await removeAll(mallory, all);
      return `${completed} of ${all.length} completed; ${answers.toString()}`;
    },
  },
  {
    name: 'session-churn',
    what: 'sessions that are created, terminated and deleted as fast as it goes',
    expected: /^\d+ rounds/,
    run: async (mallory) => {
      const answers = new Answers();
      let rounds = 0;
      const end = mallory.until(14);
      const lane = async (): Promise<void> => {
        while (Date.now() < end && !mallory.signal.aborted) {
          const [id] = await startMany(mallory, 1, 'sleep 60', answers);
          if (id === undefined) await delay(300);
          else await mallory.remove(id);
          rounds += 1;
        }
      };
      await Promise.all([lane(), lane(), lane()]);
      return `${rounds} rounds; ${answers.toString()}`;
    },
  },
  {
    name: 'huge-prompts',
    what: 'prompts of 3.9 MiB, and lists of the turns that have them',
    expected: /202|413|422|429/,
    run: async (mallory) => {
      const answers = new Answers();
      const prompt = `: ${'x'.repeat(3_900_000)}`;
      const ids: string[] = [];
      for (let count = 0; count < 8 && !mallory.signal.aborted; count += 1)
        ids.push(...(await startMany(mallory, 1, prompt, answers)));
      for (const id of ids)
        for (let times = 0; times < 3; times += 1)
          answers.add((await mallory.request('GET', `/sessions/${id}/turns`)).status + ' turns');
      await removeAll(mallory, ids);
      return answers.toString();
    },
  },
  {
    name: 'delete-large-log',
    what: 'sessions with 15 MiB of output in tiny pieces, read by many and then deleted',
    expected: /^200 after \d+ ms/,
    run: async (mallory) => {
      const prompt = `for i in {1..120}; do printf '%0120000d\\n' $i; done`;
      const id = await mallory.start({ prompts: [prompt], seconds: 60 });
      await Promise.all(Array.from({ length: 6 }, () => mallory.follow(id, 0, 60)));
      const begun = Date.now();
      const { status } = await mallory.request('DELETE', `/sessions/${id}/delete`);
      return `${status} after ${Date.now() - begun} ms`;
    },
  },
  {
    name: 'repeated-keys',
    what: 'the same requests with the same and with other idempotency keys, at the same time',
    expected: /20[12]|429/,
    run: async (mallory) => {
      const answers = new Answers();
      const agent_id = await mallory.agent();
      const ids = new Set<string>();
      const end = mallory.until(8);
      for (let round = 0; Date.now() < end && !mallory.signal.aborted; round += 1) {
        const batch = Array.from({ length: 20 }, async (_one, index) => {
          const answer = await mallory.keyed(`k-${round}-${index % 5}`, '/sessions', {
            agent_id,
            prompt: index % 7 === 0 ? `echo ${index}` : 'echo same',
            timeout: 5,
          });
          answers.add(answer);
          if (answer.status === 202) ids.add(String(answer.body['id']));
        });
        await Promise.all(batch);
        await removeAll(mallory, [...ids]);
        ids.clear();
      }
      return answers.toString();
    },
  },
  {
    name: 'revoked-token',
    what: 'a stream that was opened with a token which is then revoked',
    expected: /^the stream ended/,
    run: async (mallory) => {
      const { token, revoke } = await mallory.spareToken();
      const id = await mallory.start({
        prompts: ['for i in {1..100}; do echo $i; sleep 0.3; done'],
        seconds: 60,
      });
      try {
        const stream = await fetch(`${mallory.url}/sessions/${id}/stream`, {
          headers: { authorization: `Bearer ${token}` },
          signal: AbortSignal.any([mallory.signal, AbortSignal.timeout(40_000)]),
        });
        const reader = stream.body?.getReader();
        await reader?.read();
        await revoke();
        const revokedAt = Date.now();
        for (;;) {
          const part = await reader?.read().catch(() => undefined);
          const after = Date.now() - revokedAt;
          if (!part || part.done) return `the stream ended ${after} ms after the token was revoked`;
          if (after > 10_000) return 'BREACH: the stream of a revoked token goes on after 10 s';
        }
      } finally {
        await mallory.remove(id);
      }
    },
  },
];
