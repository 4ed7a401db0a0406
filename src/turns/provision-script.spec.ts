import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { needsWritableRoot, provisionScripts, type ProvisionInput } from './provision-script.js';

let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'provision-'));
});
afterAll(() => rmSync(root, { recursive: true }));

const input = (rest: Partial<ProvisionInput>): ProvisionInput => ({
  layout: { home: root, workspace: root },
  packages: [],
  repositories: [],
  setupScript: '',
  ...rest,
});

/** All of it, one after the other. */
function provisionScript(what: ProvisionInput): string {
  return provisionScripts(what)
    .map(({ script }) => script)
    .join('\n');
}

function run(script: string) {
  return spawnSync('bash', ['-s'], {
    input: script,
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: root, TMPDIR: root, GIT_CONFIG_NOSYSTEM: '1' },
  });
}

describe('provisionScript', () => {
  it('is nothing where there is nothing to do', () => {
    expect(provisionScripts(input({ setupScript: ' \n' }))).toEqual([]);
  });

  it('is reusable as far as nothing of the session has a part in it', () => {
    const packages = [{ manager: 'npm' as const, name: 'typescript' }];
    const setupScript = 'make tools';
    const repository = {
      type: 'git_repository' as const,
      url: 'https://git.example/r',
      mount_path: 'r',
    };
    expect(provisionScripts(input({ packages, setupScript }))).toMatchObject([
      { reusable: true, script: expect.stringContaining('make tools') as unknown },
    ]);
    expect(
      provisionScripts(input({ packages, setupScript, repositories: [repository] })),
    ).toMatchObject([
      { reusable: true, script: expect.not.stringContaining('make tools') as unknown },
      { reusable: false, script: expect.stringMatching(/clone[^]*make tools/) as unknown },
    ]);
  });

  it('runs the setup script as it is written, in the workspace, without eating its own text', () => {
    const setupScript = `cat\npwd >here\necho 'it'"'"'s $HOME' "\${X:-unset}" >>here\nEND_OF_SETUP_SCRIPT\ntrue`;
    const { status, stderr } = run(provisionScript(input({ setupScript })));
    expect({ status, stderr: stderr.includes('END_OF_SETUP_SCRIPT: command not found') }).toEqual({
      status: 0,
      stderr: true,
    });
    expect(readFileSync(join(root, 'here'), 'utf8')).toBe(`${root}\nit's $HOME unset\n`);
  });

  it('says which step failed', () => {
    const { status, stdout, stderr } = run(
      provisionScript(input({ setupScript: 'echo no >&2; exit 7' })),
    );
    expect(status).toBe(7);
    expect(stderr).toBe('no\nfailed command: exit 7\n');
    expect(stdout).toBe('the setup script failed with exit code 7\n');
  });

  it('says which command of a package manager failed', () => {
    const packages = [{ manager: 'apt' as const, name: 'x' }];
    const script = provisionScript(input({ packages })).replaceAll('apt-get', 'false apt-get');
    const { stdout, stderr } = run(script);
    expect(stdout).toBe('installing apt packages failed with exit code 1\n');
    expect(stderr).toBe('failed command: false apt-get -qq update\n');
  });

  it('clones what is asked for, once', () => {
    const source = join(root, "it's a source");
    const git = (...args: string[]) =>
      spawnSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd: source });
    spawnSync('git', ['init', '-q', '-b', 'main', source]);
    git('commit', '-q', '--allow-empty', '-m', 'one');
    const sha = git('rev-parse', 'HEAD').stdout.toString().trim();
    git('commit', '-q', '--allow-empty', '-m', 'two');
    git('branch', 'side');
    const repository = (mount: string, checkout?: object) => ({
      type: 'git_repository' as const,
      url: source,
      mount_path: mount,
      ...(checkout && { checkout: checkout as never }),
    });
    const script = provisionScript(
      input({
        repositories: [
          repository('plain'),
          repository('deep/branch', { type: 'branch', name: 'side' }),
          repository('commit', { type: 'commit', sha }),
        ],
      }),
    );
    expect(run(script)).toMatchObject({ status: 0, stderr: '' });
    const head = (path: string) =>
      spawnSync('git', ['-C', join(root, path), 'log', '-1', '--format=%s %D'], {
        encoding: 'utf8',
      }).stdout;
    expect(head('plain')).toContain('two HEAD -> main');
    expect(head('deep/branch')).toContain('HEAD -> side');
    expect(head('commit')).toBe('one HEAD\n');
    // A second run, after a crash, leaves them alone.
    expect(run(script)).toMatchObject({ status: 0, stderr: '' });
  });

  it('clones beside each other what looks like the draft of another clone', () => {
    const source = join(root, 'other-source');
    spawnSync('git', ['init', '-q', '-b', 'main', source]);
    const identity = ['-c', 'user.name=t', '-c', 'user.email=t@t'];
    spawnSync('git', [...identity, 'commit', '-q', '--allow-empty', '-m', 'one'], { cwd: source });
    const mounts = ['x.cloning', 'x', '.cloning', '.cloning_/deep'];
    const repositories = mounts.map((mount_path) => ({
      type: 'git_repository' as const,
      url: source,
      mount_path,
    }));
    const script = provisionScript(input({ repositories }));
    for (let runs = 0; runs < 2; runs += 1) {
      expect(run(script)).toMatchObject({ status: 0, stderr: '' });
      for (const mount of mounts) expect(existsSync(join(root, mount, '.git'))).toBe(true);
    }
  });

  it('quotes package names and joins versions as each manager wants them', () => {
    const script = provisionScript(
      input({
        packages: [
          { manager: 'apt', name: 'jq', version: '1.7' },
          { manager: 'pip', name: 'requests[socks]' },
          { manager: 'pip', name: 'exact', version: '1.2' },
          { manager: 'pip', name: 'range', version: '>=1.2,<2' },
          { manager: 'npm', name: '@scope/x', version: '2' },
          { manager: 'cargo', name: 'tool', version: '>=1,<2' },
          { manager: 'gem', name: 'rake', version: '>=13,<14' },
          { manager: 'gem', name: 'rack' },
          { manager: 'go', name: 'example.com/x' },
          { manager: 'go', name: 'example.com/y', version: '1.2.3' },
          { manager: 'go', name: 'example.com/z', version: '>=1.2' },
        ],
      }),
    );
    for (const word of [
      "'jq=1.7'",
      "'requests[socks]'",
      "'exact==1.2'",
      "'range>=1.2,<2'",
      "'@scope/x@2'",
      "'tool@>=1,<2'",
      "gem install --silent --user-install --bindir \"$HOME/.local/bin\" 'rake' '--version' '>=13,<14'\n",
      'gem install --silent --user-install --bindir "$HOME/.local/bin" \'rack\'\n',
      "'example.com/x@latest'",
      "'example.com/y@v1.2.3'",
      "'example.com/z@>=v1.2'",
    ]) {
      expect(script).toContain(word);
    }
    expect(spawnSync('bash', ['-n'], { input: script }).status).toBe(0);
  });

  it('needs a writable root for all but npm packages', () => {
    const packages = (manager: 'npm' | 'apt') => [{ manager, name: 'x' }];
    expect(needsWritableRoot(input({ packages: packages('npm') }))).toBe(false);
    expect(needsWritableRoot(input({ packages: packages('apt') }))).toBe(true);
    expect(needsWritableRoot(input({ setupScript: 'true' }))).toBe(true);
  });
});
