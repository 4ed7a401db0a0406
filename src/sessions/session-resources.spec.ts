import { describe, expect, it } from '@jest/globals';
import type { GitRepositoryDto } from './dto/create-session.dto.js';
import { readResources } from './session-resources.js';

const repository = (rest: Partial<GitRepositoryDto>): GitRepositoryDto => ({
  type: 'git_repository',
  url: 'https://git.example.com/team/app.git',
  ...rest,
});

describe('readResources', () => {
  it('takes tokens out and fills in defaults', () => {
    const { resources, tokens } = readResources([
      repository({ type: 'repo', authorization_token: 'secret-token' }),
      repository({ url: 'http://git.example.com/x', mount_path: '/workspace/libs/x/' }),
    ]);
    expect(resources).toEqual([
      { type: 'git_repository', url: 'https://git.example.com/team/app.git', mount_path: 'app' },
      { type: 'git_repository', url: 'http://git.example.com/x', mount_path: 'libs/x' },
    ]);
    expect(tokens).toEqual({ 0: 'secret-token' });
    expect(JSON.stringify(resources)).not.toContain('secret-token');
  });

  it('names a repository whose address says no name', () => {
    const names = ['https://h/', 'https://h/..', 'https://h/a%2Fb%20c'].map(
      (url) => readResources([repository({ url })]).resources[0]?.mount_path,
    );
    expect(names).toEqual(['repository', 'repository', 'repository']);
  });

  it.each<[Partial<GitRepositoryDto>, string]>([
    [{ url: 'ssh://git@h/x' }, 'must begin with https'],
    [{ url: 'nonsense' }, 'must begin with https'],
    [{ url: 'https://user:pass@h/x' }, 'must not hold credentials'],
    [{ mount_path: '../x' }, 'below the workspace'],
    [{ mount_path: 'a/../../x' }, 'below the workspace'],
    [{ mount_path: '/etc' }, 'below the workspace'],
    [{ mount_path: '/workspace/' }, 'below the workspace'],
    [{ checkout: { type: 'branch', name: '--upload-pack=x' } }, 'name of a branch'],
    [{ checkout: { type: 'branch', name: 'a..b' } }, 'name of a branch'],
    [{ checkout: { type: 'commit', sha: 'HEAD' } }, 'hexadecimal'],
  ])('refuses %p', (rest, sentence) => {
    expect(() => readResources([repository(rest)])).toThrow(sentence);
  });

  it('refuses two repositories in one place', () => {
    const clash = [repository({}), repository({ mount_path: 'app/inner' })];
    expect(() => readResources(clash)).toThrow('mount path');
  });
});
