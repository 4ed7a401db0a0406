import type { Attack } from '../attack.js';
import type { Mallory } from '../mallory.js';
import { flood, send } from './flood.js';

/** An agent of 3.9 MB, which is as large as a body may be. */
const LARGE_AGENT = {
  provider: 'shell',
  model: 'shell/bash',
  system: 'y'.repeat(900_000),
  skills: ['a', 'b', 'c'].map((name) => ({ name, content: 'z'.repeat(1_000_000) })),
};

const KEYS = `{${Array.from({ length: 300_000 }, (_key, index) => `"k${index}":1`).join(',')}}`;
const DEEP = `{"name":${'['.repeat(1_500_000)}${']'.repeat(1_500_000)}}`;
/** What a service answers that refuses; a connection that is cut while a body is sent is as good. */
const REFUSED = /^(?!.*× [25]\d\d).*× /;

export const CLIENT_ATTACKS: readonly Attack[] = [
  {
    name: 'body-without-token',
    what: 'bodies of 300,000 keys from somebody without a token',
    expected: /^(\d+× (401|413|ECONNRESET|EPIPE|UND_ERR_SOCKET)[^,]*(, )?)+$/,
    run: (mallory) =>
      flood(mallory, { seconds: 12, lanes: 4 }, () => send(mallory, '/agents', KEYS)),
  },
  {
    name: 'body-wrong-token',
    what: 'deeply nested bodies with a token that does not exist',
    expected: /^(\d+× (401|413|ECONNRESET|EPIPE|UND_ERR_SOCKET)[^,]*(, )?)+$/,
    run: (mallory) =>
      flood(mallory, { seconds: 10, lanes: 4 }, (index) =>
        send(mallory, '/sessions', DEEP, {
          authorization: `Bearer ast_${'x'.repeat(48)}${index % 10}`,
        }),
      ),
  },
  {
    name: 'body-of-keys',
    what: 'bodies of 300,000 keys with a token',
    expected: REFUSED,
    run: (mallory) =>
      flood(mallory, { seconds: 12, lanes: 4 }, () =>
        send(mallory, '/agents', KEYS, mallory.bearer),
      ),
  },
  {
    name: 'body-deep',
    what: 'bodies that are nested 1,500,000 deep, with a token',
    expected: REFUSED,
    run: (mallory) =>
      flood(mallory, { seconds: 10, lanes: 3 }, () =>
        send(mallory, '/agents', DEEP, mallory.bearer),
      ),
  },
  {
    name: 'stored-environments',
    what: '100 environments of 1.4 MB',
    expected: /422 \(.*(stor|limit|byte)/i,
    run: (mallory) =>
      flood(mallory, { seconds: 20, lanes: 2, atMost: 100 }, (index) =>
        mallory.hoarder.request('POST', '/environments', {
          name: `large ${index}`,
          setup_script: `# ${'x'.repeat(1_000_000)}`,
          env_vars: Object.fromEntries(
            Array.from({ length: 7 }, (_value, key) => [`LARGE_${key}`, 'x'.repeat(60_000)]),
          ),
        }),
      ),
  },
  {
    name: 'stored-agents',
    what: '150 agents of 3.9 MB, and lists of all of them',
    expected: /422 \(.*(stor|limit|byte)/i,
    run: async (mallory) => {
      const made = await flood(mallory, { seconds: 25, lanes: 3, atMost: 150 }, (index) =>
        mallory.hoarder.request('POST', '/agents', {
          ...LARGE_AGENT,
          name: `large ${index}`,
        }),
      );
      const listed = await flood(mallory, { seconds: 15, lanes: 3, atMost: 6 }, () =>
        listAll(mallory.hoarder),
      );
      return `${made}; lists: ${listed}`;
    },
  },
  {
    name: 'stored-versions',
    what: 'an agent of 3.9 MB that is changed 60 times, and lists of its versions',
    expected: /422 \(.*(stor|limit|byte)/i,
    run: async (mallory) => {
      const { body } = await mallory.hoarder.request('POST', '/agents', {
        name: 'versions',
        provider: 'shell',
        model: 'shell/bash',
      });
      let version = 1;
      return flood(mallory, { seconds: 20, lanes: 1, atMost: 60 }, async (index) => {
        const answer = await mallory.hoarder.request('PUT', `/agents/${String(body['id'])}`, {
          version,
          system: `${index} ${LARGE_AGENT.system}`,
          skills: LARGE_AGENT.skills,
        });
        if (answer.status === 200) version += 1;
        return answer;
      });
    },
  },
  {
    name: 'validation-flood',
    what: 'bodies with 20,000 mistakes each, every one of which could be told',
    expected: REFUSED,
    run: (mallory) => {
      const skills = Array.from({ length: 20_000 }, () => ({ name: 7, files: [{ path: 1 }] }));
      const body = { name: 'x', provider: 'shell', model: 'shell/bash', skills };
      return flood(mallory, { seconds: 12, lanes: 3 }, () =>
        mallory.request('POST', '/agents', body),
      );
    },
  },
  {
    name: 'slow-patterns',
    what: 'values that make bad regular expressions slow: hosts, addresses, models, packages',
    expected: REFUSED,
    run: (mallory) => {
      const dots = `${'a.'.repeat(200_000)}!`;
      const bodies = [
        ['/environments', { networking: { type: 'limited', allowed_hosts: [dots, `*.${dots}`] } }],
        [
          '/environments',
          { packages: [`npm:${'@a/'.repeat(200_000)}`, 'x'.repeat(1_000_000) + '\n'] },
        ],
        [
          '/agents',
          {
            name: 'x',
            provider: 'shell',
            model: `shell/${' '.repeat(1_000_000)}!`,
            environment_id: '-'.repeat(1_000_000),
          },
        ],
        ['/agents', { name: 'x', provider: 'nobody', model: '/'.repeat(2_000_000) }],
      ] as const;
      return flood(mallory, { seconds: 10, lanes: 3 }, (index) => {
        const [path, body] = bodies[index % bodies.length] ?? bodies[0];
        return mallory.request('POST', path, body);
      });
    },
  },
  {
    name: 'request-flood',
    what: 'small requests as fast as it goes, most of them for things that are not there',
    expected: /404/,
    run: (mallory) => {
      const paths = [
        '/sessions',
        '/agents/00000000-0000-4000-8000-000000000000',
        '/sessions/%00/stream',
        '/sessions/00000000-0000-4000-8000-000000000000/stream?since=99999999999999999999',
        `/agents/${'9'.repeat(4_000)}`,
        '/environments/../../etc/passwd',
      ];
      return flood(mallory, { seconds: 12, lanes: 16 }, (index) =>
        mallory.request('GET', paths[index % paths.length] ?? '/sessions'),
      );
    },
  },
];

/** Reads the whole list without keeping it. */
async function listAll(mallory: Mallory): Promise<string> {
  const signal = AbortSignal.any([mallory.signal, AbortSignal.timeout(30_000)]);
  const response = await fetch(`${mallory.url}/agents`, { headers: mallory.bearer, signal });
  let bytes = 0;
  for await (const chunk of response.body ?? []) bytes += (chunk as Uint8Array).length;
  return `${response.status} with ${bytes >= 100_000_000 ? 'more' : 'less'} than 100 MB`;
}
