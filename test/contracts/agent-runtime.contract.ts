import { describe, expect, test } from '@jest/globals';
import type { AgentRuntime, McpServer, RuntimeTurn } from '../../src/runtimes/agent-runtime.js';
import type { SandboxFile } from '../../src/sandboxes/driver/sandbox-driver.js';

/** What the suite has to be told about a runtime beside the runtime itself. */
export interface RuntimeFixture {
  /** A model as an agent would have it, and as the program takes it. */
  model: { asked: string; taken: string };
  /** Models that are refused, provider prefix cut off. */
  refusedModels: readonly string[];
  /** Reads the servers back out of the files, in the program's own format. */
  readMcp(files: readonly SandboxFile[]): Record<string, Record<string, unknown>>;
  /** What these have to be in that format. */
  mcp: { pipes: unknown; wires: unknown; events: unknown };
  /** Lines of its output that end a turn; none where the exit code tells all. */
  lines?: { done: readonly string[]; failed: readonly string[]; neither: readonly string[] };
}

export const KEY = `key "with' quotes and $(signs)`;
const GATEWAY = 'http://gateway.example:8080';
const LAYOUT = { home: '/home/agent', workspace: '/workspace' };
const SECRET = 'mcp-secret-0123456789';
export const SERVERS: readonly McpServer[] = [
  {
    type: 'stdio',
    name: 'pipes',
    command: 'node',
    args: ['-e', 'say("hi\\n")', 'C:\\back "slash"'],
    env: { TOKEN: SECRET },
  },
  {
    type: 'http',
    name: 'wires',
    url: 'https://mcp.example/mcp',
    headers: { 'X-Token': SECRET },
  },
  {
    type: 'sse',
    name: 'events',
    url: 'https://mcp.example/sse',
    headers: { 'X-Token': SECRET },
  },
];

/** What every {@link AgentRuntime} has to do. A runtime that fails here would fail its users. */
export function agentRuntimeContract(runtime: AgentRuntime, fixture: RuntimeFixture): void {
  const own = `${runtime.provider}/`;
  const asked = fixture.model.asked.startsWith(own)
    ? fixture.model.asked.slice(own.length)
    : fixture.model.asked;
  const resolved = runtime.resolveModel(asked);
  const needsKey = resolved?.api !== undefined;
  const turn = (changes: Partial<RuntimeTurn> = {}): RuntimeTurn => ({
    turnNumber: 1,
    sessionId: '6f9619ff-8b86-4011-b42d-00c04fc964ff',
    model: resolved?.model ?? '',
    prompt: 'Say "hello"\nand $(more)',
    mcpServers: [],
    skills: [],
    access: needsKey ? { apiKey: KEY, baseUrl: GATEWAY } : {},
    layout: LAYOUT,
    ...changes,
  });

  describe(runtime.provider, () => {
    test('takes its models and refuses others', () => {
      expect(resolved?.model).toBe(fixture.model.taken);
      const prefixes = [...runtime.modelPrefixes, own];
      expect(prefixes.some((prefix) => fixture.model.asked.startsWith(prefix))).toBe(true);
      for (const model of fixture.refusedModels) {
        expect([model, runtime.resolveModel(model)]).toEqual([model, undefined]);
      }
    });

    test('pins exact versions of what it needs', () => {
      for (const program of runtime.programs) {
        expect(program.version).toMatch(/^\d+\.\d+\.\d+$/);
        expect(program.entries.length).toBeGreaterThan(0);
        for (const entry of program.entries) expect(entry).toMatch(/^(?!\/|.*\.\.)/);
      }
      const [program] = runtime.launch(turn()).command;
      if (runtime.programs.length > 0) expect(program).toBe(runtime.programs[0]?.bin);
    });

    test('gives the prompt by standard input and no secret by arguments', () => {
      for (const turnNumber of [1, 2]) {
        const { command, stdin } = runtime.launch(turn({ turnNumber, mcpServers: SERVERS }));
        expect(stdin).toBe(turn().prompt);
        const text = command.join('\n');
        for (const hidden of [KEY, SECRET, turn().prompt]) expect(text).not.toContain(hidden);
      }
    });

    test('gives the program its key and its gateway', () => {
      const { command, env } = runtime.launch(turn());
      if (!needsKey) return expect(Object.values(env)).not.toContain(KEY);
      expect(Object.values(env)).toContain(KEY);
      expect([...command, ...Object.values(env)].join('\n')).toContain(GATEWAY);
      const direct = runtime.launch(turn({ access: { apiKey: KEY } }));
      expect([...direct.command, ...Object.values(direct.env)].join('\n')).not.toContain(
        'undefined',
      );
    });

    test('reserves the variables by which it gives key and gateway', () => {
      const { env } = runtime.launch(turn());
      const given = Object.keys(env).filter((name) => {
        const value = env[name] ?? '';
        return value.includes(KEY) || value.includes(GATEWAY);
      });
      expect(runtime.reservedVariables).toEqual(expect.arrayContaining(given));
    });

    test('tool servers’ secrets are in no environment', () => {
      const { env } = runtime.launch(turn({ mcpServers: SERVERS }));
      expect(JSON.stringify(env)).not.toContain(SECRET);
    });

    test('writes what holds a secret for its owner alone, in the home', () => {
      const settings = runtime.settingsFiles(turn());
      if (needsKey) {
        const keys = settings.filter(({ content }) => shellValues(String(content)).includes(KEY));
        expect(keys.length).toBeGreaterThan(0);
      }
      for (const file of [...settings, ...runtime.mcpFiles(turn({ mcpServers: SERVERS }))]) {
        expect(file.mode).toBe(0o600);
        expect(file.path.startsWith(`${LAYOUT.home}/.`)).toBe(true);
      }
    });

    test('describes tool servers as its program reads them', () => {
      const files = runtime.mcpFiles(turn({ mcpServers: SERVERS }));
      expect(fixture.readMcp(files)).toEqual(fixture.mcp);
    });

    test('files that announce tool servers keep the settings that they replace', () => {
      const servers = runtime.mcpFiles(turn({ mcpServers: SERVERS }));
      for (const before of runtime.settingsFiles(turn())) {
        const after = servers.find(({ path }) => path === before.path);
        if (after === undefined) continue;
        const lines = String(before.content).split('\n');
        const kept = lines.filter((line) => String(after.content).includes(line.trim()));
        expect(kept.length / lines.length).toBeGreaterThan(0.8);
      }
    });

    test('looks for skills in the home', () => {
      expect(runtime.skillsFolder(LAYOUT)).toMatch(/^\/home\/agent\/\..*skills$/);
    });

    test('goes on with its session from the second turn on, and starts one with the first', () => {
      if (runtime.programs.length === 0) return;
      const [first, second, third] = [1, 2, 3].map((turnNumber) =>
        runtime.launch(turn({ turnNumber })).command.join(' '),
      );
      expect(second).not.toBe(first);
      expect(third).toBe(second);
      expect(`${second}`).toMatch(/ (--resume|resume --last|-r|-c)( |$)/);
      expect(`${first}`).not.toMatch(/ (--resume|resume|-r|--last)( |$)/);
    });

    test('a prompt that begins with a slash is none of its commands', () => {
      const { stdin } = runtime.launch(turn({ prompt: '/init now' }));
      if (runtime.programs.length === 0) expect(stdin).toBe('/init now');
      else expect(stdin).toMatch(/^\s\/init now$/);
    });

    test('knows by the output how the turn went', () => {
      const { done, failed, neither } = fixture.lines ?? { done: [], failed: [], neither: [] };
      expect(runtime.judge === undefined).toBe(fixture.lines === undefined);
      for (const line of done) expect(runtime.judge?.(line)).toMatchObject({ verdict: 'done' });
      for (const line of failed) {
        expect(runtime.judge?.(line)).toMatchObject({
          verdict: 'failed',
          reason: expect.stringMatching(/./),
        });
      }
      for (const line of [...neither, '', 'plain words', '{"cut', '[]', 'null', '{}']) {
        expect(runtime.judge?.(line)?.verdict).toBeUndefined();
      }
    });
  });
}

/** The values of a file of `export NAME='value'` lines. */
function shellValues(text: string): string[] {
  return [...text.matchAll(/^export \w+='((?:[^']|'\\'')*)'$/gm)].map(([, value = '']) =>
    value.replaceAll(`'\\''`, `'`),
  );
}
