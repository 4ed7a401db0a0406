import { describe, expect, it } from '@jest/globals';
import type { TurnPlan } from './turn-plan.js';
import { recipeOf } from './warm-recipe.js';

type Environment = NonNullable<TurnPlan['environment']>;

const ENVIRONMENT: Environment = {
  id: 'an environment',
  version: 1,
  packages: [],
  envVars: { KEY: 'sealed' },
  setupScript: '',
  networking: { type: 'unrestricted' },
};
const INSTALLING = { ...ENVIRONMENT, setupScript: 'make tools' };
const PROGRAM = { bin: 'agent', package: 'agent', version: '1.0.0', entries: ['agent/run'] };
const REPOSITORY = {
  type: 'git_repository',
  url: 'https://forge.example/private.git',
  mount_path: 'private',
  token: 'of the session',
} as unknown as TurnPlan['repositories'][number];

function recipe(
  environment?: Environment,
  more: {
    programs?: TurnPlan['runtime']['programs'];
    repositories?: TurnPlan['repositories'];
  } = {},
) {
  const { programs = [], repositories = [] } = more;
  const plan = {
    sandboxId: 'of the session',
    environment,
    repositories,
    runtime: { programs },
    runtimeTurn: {
      prompt: 'of the session',
      access: { apiKey: 'of the session' },
      layout: { home: '/home/agent', workspace: '/workspace' },
      mcpServers: [],
    },
    apiHosts: [],
    gateway: undefined,
  } as unknown as TurnPlan;
  return recipeOf(plan, async () => ['packages.example']);
}

describe('the recipe of a session', () => {
  const LIMITED = {
    networking: {
      type: 'limited' as const,
      allowed_hosts: [],
      allow_package_managers: true,
      allow_mcp_servers: false,
    },
  };

  it.each([
    ['no environment and one that installs nothing', undefined, ENVIRONMENT],
    ['two of those', ENVIRONMENT, { ...ENVIRONMENT, id: 'another', version: 7 }],
    ['the same version', INSTALLING, { ...INSTALLING }],
  ])('is the same for %s', async (_name, one, other) => {
    expect((await recipe(one)).key).toBe((await recipe(other)).key);
  });

  it.each([
    ['another version', INSTALLING, { ...INSTALLING, version: 2 }],
    ['another environment that says the same', INSTALLING, { ...INSTALLING, id: 'another' }],
    ['another network', INSTALLING, { ...INSTALLING, ...LIMITED }],
    ['another network where nothing is installed', ENVIRONMENT, { ...ENVIRONMENT, ...LIMITED }],
  ])('is another one for %s', async (_name, one, other) => {
    expect((await recipe(one)).key).not.toBe((await recipe(other)).key);
  });

  it('depends on the agent program, and on whether clones come before the setup script', async () => {
    const all = [
      await recipe(INSTALLING),
      await recipe(INSTALLING, { programs: [PROGRAM] }),
      await recipe(INSTALLING, { repositories: [REPOSITORY] }),
    ];
    expect(new Set(all.map(({ key }) => key)).size).toBe(3);
    expect(all.map(({ setup }) => setup !== null)).toEqual([true, true, false]);
    expect(all.map(({ writableRoot }) => writableRoot)).toEqual([true, true, true]);
  });

  it('holds nothing of a session and no secret', async () => {
    const packages: Environment['packages'] = [{ manager: 'apt', name: 'jq' }];
    const made = await recipe(
      { ...INSTALLING, ...LIMITED, packages },
      { repositories: [REPOSITORY], programs: [PROGRAM] },
    );
    expect(made.setup).toMatchObject({ version: 1, clones: true });
    expect(JSON.stringify(made)).not.toMatch(/of the session|sealed|make tools/);
  });
});
