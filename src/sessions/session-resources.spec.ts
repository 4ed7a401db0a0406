import { describe, expect, it } from '@jest/globals';
import type { FileResourceDto, GitRepositoryDto } from './dto/create-session.dto.js';
import { isRepository, readResources } from './session-resources.js';

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

  it('takes the content of files out', () => {
    const { resources, tokens, files } = readResources([
      { type: 'file', path: '/workspace/app/notes', content: 'né' } as FileResourceDto,
      repository({ authorization_token: 'secret-token' }),
      { type: 'file', path: 'b//c', content_base64: 'AP8=' } as FileResourceDto,
    ]);
    expect(resources).toEqual([
      { type: 'file', path: 'app/notes', size: 3 },
      { type: 'git_repository', url: 'https://git.example.com/team/app.git', mount_path: 'app' },
      { type: 'file', path: 'b/c', size: 2 },
    ]);
    expect(tokens).toEqual({ 1: 'secret-token' });
    expect(files).toEqual([
      { path: 'app/notes', content: Buffer.from('né') },
      { path: 'b/c', content: Buffer.from([0, 255]) },
    ]);
  });

  it.each<[Partial<FileResourceDto>[], string]>([
    [[{ path: '../x', content: '' }], 'below the workspace'],
    [[{ path: 'a\nb', content: '' }], 'not a valid path'],
    [[{ path: 'a' }], 'either content or content_base64'],
    [[{ path: 'a', content: '', content_base64: '' }], 'either content or content_base64'],
    [[{ path: 'a', content_base64: 'AP8' }], 'not base64'],
    [[{ path: 'a', content_base64: 'A=P8' }], 'not base64'],
    [
      [
        { path: 'a', content: '' },
        { path: './a', content: '' },
      ],
      'have the path "a"',
    ],
    [
      [
        { path: 'a', content: '' },
        { path: 'a/b', content: '' },
      ],
      'have the path "a/b"',
    ],
  ])('refuses the files %j', (files, reason) => {
    const submitted = files.map((file) => ({ type: 'file', ...file }) as FileResourceDto);
    expect(() => readResources(submitted)).toThrow(reason);
  });

  it('refuses a file in the place of a repository or of its parent, not in it', () => {
    const file = (path: string) => ({ type: 'file', path, content: '' }) as FileResourceDto;
    const deep = repository({ mount_path: 'a/b' });
    expect(() => readResources([deep, file('a')])).toThrow('have the path "a"');
    expect(() => readResources([deep, file('a/b')])).toThrow('have the path "a/b"');
    expect(readResources([deep, file('a/b/c'), file('a/c')]).files).toHaveLength(2);
  });

  it('names a repository whose address says no name', () => {
    const names = [
      'https://h/',
      'https://h/..',
      'https://h/a%2Fb%20c',
      'https://h/%ff.git',
      'https://h/b%61r.git',
    ].map((url) => readResources([repository({ url })]).resources.find(isRepository)?.mount_path);
    expect(names).toEqual(['repository', 'repository', 'repository', 'repository', 'bar']);
  });

  it('writes the scheme as git knows it and leaves the rest as it is', () => {
    const resource = readResources([
      repository({ url: 'HTTPS://Git.Example:443/A.git' }),
    ]).resources.find(isRepository);
    expect(resource?.url).toBe('https://Git.Example:443/A.git');
  });

  it.each<[Partial<GitRepositoryDto>, string]>([
    [{ url: 'ssh://git@h/x' }, 'must begin with https'],
    [{ url: 'nonsense' }, 'must begin with https'],
    [{ url: 'https://user:pass@h/x' }, 'must not hold credentials'],
    [{ url: 'https:h/x' }, 'must begin with https'],
    [{ url: ' https://h/x' }, 'must begin with https'],
    [{ url: 'https:///x' }, 'not a valid URL'],
    [{ url: 'https://h\nx/a' }, 'not a valid URL'],
    [{ url: 'https://h/100%.git' }, 'not a valid URL'],
    [{ url: 'https://h/%E0%A4%A.git' }, 'not a valid URL'],
    [{ url: 'https://*.com/x.git' }, 'not a valid URL'],
    [{ mount_path: 'a\nb' }, 'not a valid path'],
    [{ mount_path: `a/${'x'.repeat(256)}` }, 'not a valid path'],
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
