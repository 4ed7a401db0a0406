import { describe, expect, it } from '@jest/globals';
import { envFile, gitCredentialFiles, inlineSkillFiles } from './sandbox-files.js';

const layout = { home: '/home/agent', workspace: '/workspace' };

describe('sandbox files', () => {
  it('writes variables so that a shell reads back what they were', () => {
    const { content, mode } = envFile(layout, { A: "it's\n$X", B: '' });
    expect(content).toBe(`export A='it'\\''s\n$X'\nexport B=''\n`);
    expect(mode).toBe(0o600);
  });

  it('gives git one credential for each repository with a token', () => {
    const [credentials] = gitCredentialFiles(layout, [
      {
        type: 'git_repository',
        url: 'https://h:8443/a/b.git',
        mount_path: 'b',
        token: 'p@ss/w:rd',
      },
      { type: 'git_repository', url: 'https://h/public', mount_path: 'c' },
    ]);
    expect(credentials).toEqual({
      path: '/home/agent/.git-credentials',
      content: 'https://x-access-token:p%40ss%2Fw%3Ard@h:8443/a/b.git\n',
      mode: 0o600,
    });
  });

  it('keeps a skill below its folder', () => {
    const files = inlineSkillFiles('/skills', {
      name: '../up',
      content: 'Do it.',
      files: [{ path: '../../etc/passwd', content: 'x' }],
    });
    expect(files.map(({ path }) => path)).toEqual([
      '/skills/-up/SKILL.md',
      '/skills/-up/etc/passwd',
    ]);
    expect(files[0]?.content).toBe('---\nname: "../up"\ndescription: "../up"\n---\n\nDo it.');
  });
});
