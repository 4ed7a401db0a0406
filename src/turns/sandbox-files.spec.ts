import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { envFile, GIT_GRANT, gitConfigFile, inlineSkillFiles } from './sandbox-files.js';

const layout = { home: '/home/agent', workspace: '/workspace' };

describe('sandbox files', () => {
  it('writes variables so that a shell reads back what they were', () => {
    const { content, mode } = envFile(layout, { A: "it's\n$X", B: '' });
    expect(content).toBe(`export A='it'\\''s\n$X'\nexport B=''\n`);
    expect(mode).toBe(0o600);
  });

  describe('git settings', () => {
    const gateway = 'http://127.0.0.1';
    let home: string;
    beforeEach(() => {
      home = mkdtempSync(join(tmpdir(), 'git-settings-'));
      mkdirSync(join(home, '.session'));
    });
    afterEach(() => rmSync(home, { recursive: true }));

    /** Runs git with the settings for these repositories. */
    const git = (urls: readonly string[], args: readonly string[], input = ''): string => {
      const repositories = urls.map((url) => ({
        type: 'git_repository' as const,
        url,
        mount_path: 'x',
        token: 'a/b:c@d',
      }));
      const file = gitConfigFile({ home, workspace: home }, repositories, gateway);
      expect(file.content).not.toContain('a/b:c@d');
      writeFileSync(file.path, file.content);
      const { stdout } = spawnSync('git', args, {
        input,
        encoding: 'utf8',
        env: {
          PATH: process.env.PATH,
          HOME: home,
          GIT_CONFIG_SYSTEM: file.path,
          GIT_TERMINAL_PROMPT: '0',
          [GIT_GRANT]: 'the-grant',
        },
      });
      return stdout;
    };

    it.each([
      ['https://GitHub.Example/Team/App.git', '/git/https:github.example/Team/App.git'],
      ['https://git.example:443/team/app.git', '/git/https:git.example/team/app.git'],
      ['http://git.example:8080/a%20b.git/', '/git/http:git.example:8080/a%20b.git/'],
      ['https://git.example/team/app', '/git/https:git.example/team/app'],
    ])('send %s to the gateway', (url, path) => {
      expect(git([url], ['ls-remote', '--get-url', url])).toBe(`${gateway}${path}\n`);
      const usual = new URL(url).href;
      expect(git([url], ['ls-remote', '--get-url', usual])).toBe(`${gateway}${path}\n`);
    });

    it('leave other addresses alone', () => {
      const other = 'https://git.example/other/app.git';
      expect(git(['https://git.example/team/app'], ['ls-remote', '--get-url', other])).toBe(
        `${other}\n`,
      );
    });

    it('give git the grant for the gateway, and for nothing else', () => {
      const fill = (url: string) =>
        git(['https://git.example/a'], ['credential', 'fill'], `url=${url}\n\n`);
      expect(fill(`${gateway}/git/https:git.example/a`)).toContain(
        'username=grant\npassword=the-grant\n',
      );
      expect(fill('https://git.example/a')).not.toContain('the-grant');
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
