import type { Attack } from '../attack.js';
import { Answers, type Mallory } from '../mallory.js';

/** JSON of what no database stores as text: NUL, and halves of characters. */
const UNSTORABLE = ['a\u0000b', '\ud83d', '\udc00\ud800', '\u0000'];

const AGENT = { name: 'x', provider: 'shell', model: 'shell/bash' };

/** Sends each request once. A session that is accepted all the same is removed. */
async function each(
  mallory: Mallory,
  requests: readonly (readonly [method: string, path: string, body?: object])[],
): Promise<string> {
  const answers = new Answers();
  for (const [method, path, body] of requests) {
    const answer = await mallory
      .request(method, path, body)
      .catch((error: unknown) => String(error));
    answers.add(
      typeof answer === 'string'
        ? answer
        : { status: answer.status, body: { detail: path.slice(0, 40) } },
    );
    if (typeof answer !== 'string' && path === '/sessions' && answer.status === 202)
      await mallory.remove(String(answer.body['id']));
  }
  return answers.toString();
}

/** Everything is accepted or refused, and nothing is a mistake of the service. */
const NO_FAULT = /^(?!.*\b(500|502|503|504) \()(?!.*Error).*\b(200|201|202|400|404|409|413|422) ?/;

export const REQUEST_ATTACKS: readonly Attack[] = [
  {
    name: 'unstorable-requests',
    what: 'NUL and half characters in every text of a request',
    expected: NO_FAULT,
    run: async (mallory) => {
      const agent_id = await mallory.agent();
      return each(
        mallory,
        UNSTORABLE.flatMap((text) => [
          ['POST', '/agents', { ...AGENT, name: text }] as const,
          ['POST', '/agents', { ...AGENT, system: text }] as const,
          ['POST', '/agents', { ...AGENT, model: `shell/${text}` }] as const,
          ['POST', '/agents', { ...AGENT, metadata: { [text]: text } }] as const,
          ['POST', '/agents', { ...AGENT, skills: [{ name: text, content: text }] }] as const,
          [
            'POST',
            '/agents',
            {
              ...AGENT,
              mcp_servers: [{ type: 'stdio', name: text, command: text, env: { A: text } }],
            },
          ] as const,
          ['POST', '/environments', { name: text, setup_script: text }] as const,
          ['POST', '/environments', { env_vars: { A: text } }] as const,
          ['POST', '/environments', { packages: [text, `npm:${text}`] }] as const,
          ['POST', '/sessions', { agent_id, prompt: `echo ${text}` }] as const,
          ['POST', '/sessions', { agent_id: text, prompt: 'true' }] as const,
          [
            'POST',
            '/sessions',
            {
              agent_id,
              prompt: 'true',
              resources: [{ type: 'git_repository', url: `https://example.com/${text}.git` }],
            },
          ] as const,
          [
            'GET',
            `/agents/${encodeURIComponent(text.replaceAll(/[\ud800-\udfff]/g, '\0'))}`,
          ] as const,
          ['GET', '/agents/%ff%fe'] as const,
        ]),
      );
    },
  },
  {
    name: 'extreme-numbers',
    what: 'numbers beyond every range, in bodies, queries and headers',
    expected: NO_FAULT,
    run: async (mallory) => {
      const agent_id = await mallory.agent();
      const extremes = [1e308, -1, 0, 2 ** 53, 2 ** 63, 1.5, -0, 2 ** 31];
      return each(mallory, [
        ...extremes.map(
          (timeout) => ['POST', '/sessions', { agent_id, prompt: 'true', timeout }] as const,
        ),
        ...extremes.map(
          (version) => ['PUT', `/agents/${agent_id}`, { version, name: 'y' }] as const,
        ),
        ...extremes.flatMap((limit) => [
          ['GET', `/sessions?limit=${limit}`] as const,
          ['GET', `/agents?limit=${limit}&after=${limit}`] as const,
          ['GET', `/agents/${agent_id}/versions?limit=1&after=${limit}`] as const,
        ]),
        ['GET', '/sessions?status=%00&agent_id=%00'],
        ['GET', `/sessions?${'a=1&'.repeat(5_000)}`],
      ]);
    },
  },
  {
    name: 'wild-hosts',
    what: 'repositories and tool servers whose host is a pattern, a path or a command',
    expected: /^\d+× 422\b[^×]*$/,
    run: async (mallory) => {
      const agent_id = await mallory.agent();
      const urls = [
        'https://*.com/x.git',
        'https://*/x.git',
        'file:///etc/passwd',
        'ext::sh -c id',
        'https:x.test/a',
        'https:///a',
        ' https://x.test/a.git',
        'https://x.test\n.evil.test/a.git',
        'https://x.test/%E0%A4%A.git',
        '--upload-pack=id',
      ];
      return each(
        mallory,
        urls.map(
          (url) =>
            [
              'POST',
              '/sessions',
              { agent_id, prompt: 'true', resources: [{ type: 'git_repository', url }] },
            ] as const,
        ),
      ).then((ending) => ending.replace(/\(.*\)/, ''));
    },
  },
  {
    name: 'reserved-variables',
    what: "variables that send the operator's model key elsewhere, or move the agent's home",
    expected: /^\d+× 422\b[^×]*$/,
    run: (mallory) =>
      each(
        mallory,
        [
          'ANTHROPIC_BASE_URL',
          'OPENAI_BASE_URL',
          'GOOGLE_GEMINI_BASE_URL',
          'HOME',
          'SANDBOX_LAUNCH',
        ].map(
          (name) =>
            [
              'POST',
              '/environments',
              { env_vars: { [name]: 'https://evil.example.com' } },
            ] as const,
        ),
      ),
  },
  {
    name: 'wild-paths',
    what: 'mount paths and files of skills outside of where they belong',
    expected: /^\d+× 422\b[^×]*$/,
    run: async (mallory) => {
      const agent_id = await mallory.agent();
      const url = 'https://example.com/x.git';
      const mounts = [
        '/etc',
        '../../etc',
        '/workspace/../etc',
        '/',
        '/home/agent/.ssh/../../..',
        'a\nb',
      ];
      const files = ['../../.bashrc', '/etc/passwd', 'a/../../../b', ''];
      return each(mallory, [
        ...mounts.map(
          (mount_path) =>
            [
              'POST',
              '/sessions',
              {
                agent_id,
                prompt: 'true',
                resources: [{ type: 'git_repository', url, mount_path }],
              },
            ] as const,
        ),
        ...files.map(
          (path) =>
            [
              'POST',
              '/agents',
              { ...AGENT, skills: [{ name: 's', content: 'c', files: [{ path, content: 'c' }] }] },
            ] as const,
        ),
      ]).then((ending) =>
        ending
          .replaceAll(/ \([^)]*\)/g, '')
          .replaceAll(
            /(\d+)× 422, (\d+)× 422/g,
            (_all, a: string, b: string) => `${Number(a) + Number(b)}× 422`,
          ),
      );
    },
  },
];
