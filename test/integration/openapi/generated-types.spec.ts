import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from '@jest/globals';
import openapiTS, { astToString } from 'openapi-typescript';
import ts from 'typescript';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** What somebody writes with the generated types; each line fails to compile if the document says something else. */
const USE = `
import type { components, operations, paths } from './api.js';

type Schemas = components['schemas'];

export function describe(event: Schemas['SessionEvent']): string {
  switch (event.type) {
    case 'start': return event.session_id;
    case 'stage': return event.stage + event.state + (event.duration_ms ?? 0).toFixed() + (event.message ?? '');
    case 'turn_start': return event.turn.toFixed();
    case 'output': return event.data + event.id.toFixed();
    case 'exit': return event.code.toFixed();
    case 'error': case 'terminated': case 'stale': return event.message;
    default: { const never: never = event; return never; }
  }
}

export const agent: Schemas['CreateAgentRequest'] = {
  name: 'a', provider: 'shell', model: 'shell/bash', environment_id: null, metadata: { team: 'x' },
  mcp_servers: [{ type: 'stdio', name: 'a', command: 'b' }, { type: 'url', name: 'c', url: 'https://d' }],
  skills: [{ name: 'a', content: 'b' }, { type: 'git', url: 'https://c' }],
};
export const environment: Schemas['CreateEnvironmentRequest'] = {
  packages: ['jq', { manager: 'pip', name: 'requests' }],
  networking: { type: 'limited', allowed_hosts: ['a.example'] },
};
// @ts-expect-error an environment has no such package manager
export const wrong: Schemas['CreateEnvironmentRequest'] = { packages: [{ manager: 'brew', name: 'jq' }] };
export const session: Schemas['CreateSessionRequest'] = {
  agent_id: 'x', resources: [{ type: 'repo', url: 'https://a', checkout: { type: 'commit', sha: 'abcdef0' } }],
};

export type Cursor = NonNullable<operations['streamSession']['parameters']['query']>['since'];
export const noCursor: Cursor = undefined;
export const header: NonNullable<operations['streamSession']['parameters']['header']> = {};

type Refused<S extends 409 | 422 | 429> =
  paths['/sessions']['post']['responses'][S]['content']['application/json'];
export const limit = (refused: Refused<429>): number => refused.limit - refused.active;
export const first = ({ detail }: Refused<422>): string =>
  typeof detail === 'string' ? detail : (detail[0]?.type ?? '');
export const ended = (turn: Schemas['Turn']): string => turn.ended_at ?? 'not yet';
// @ts-expect-error it may be null
export const neverNull = (turn: Schemas['Turn']): string => turn.ended_at;
`;

it('gives types that say what clients need', async () => {
  const folder = await mkdtemp(join(ROOT, 'dist', 'generated-types-'));
  try {
    const document = await readFile(join(ROOT, 'openapi.json'), 'utf8');
    await writeFile(join(folder, 'api.ts'), astToString(await openapiTS(document)));
    await writeFile(join(folder, 'use.ts'), USE);
    const program = ts.createProgram([join(folder, 'use.ts')], {
      strict: true,
      noEmit: true,
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2024,
      types: [],
    });
    const problems = ts
      .getPreEmitDiagnostics(program)
      .map((problem) => ts.flattenDiagnosticMessageText(problem.messageText, '\n'));
    expect(problems).toEqual([]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
