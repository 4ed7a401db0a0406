import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { lstat, mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { ensureRootfs } from '../../../src/sandboxes/driver/local/rootfs/ensure-rootfs.js';
import { readHostApt } from '../../../src/sandboxes/driver/local/rootfs/host-apt.js';
import { startRelayedNamespace, type RelayedNamespace } from '../relay/relayed-namespace.js';
import { ROOTFS_TIMEOUT_MS, sharedRootfs } from './shared-rootfs.js';

const MODULE = join(process.cwd(), 'dist/src/sandboxes/driver/local/rootfs/ensure-rootfs.js');
const SECCOMP = join(process.cwd(), 'dist/src/supervisor/seccomp/profiles.js');
const PROGRAMS = ['bash', 'apt-get', 'git', 'curl', 'python3', 'pip3', 'rg', 'xz', 'ps'];

describe('ensureRootfs', () => {
  let template: string;
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rootfs-'));
    template = await sharedRootfs();
  }, ROOTFS_TIMEOUT_MS);
  afterAll(() => rm(folder, { recursive: true }));

  it('holds what an agent expects, owned by this user, and nothing special', async () => {
    for (const program of PROGRAMS) {
      expect([program, existsSync(join(template, 'usr/bin', program))]).toEqual([program, true]);
    }
    const find = async (tests: string): Promise<string> =>
      (await promisify(execFile)('find', [template, ...tests.split(' ')])).stdout;
    const [uid, gid] = [String(process.geteuid?.()), String(process.getegid?.())];
    expect(await find(`! -uid ${uid} -o ! -gid ${gid}`)).toBe('');
    expect(await find('-type b -o -type c -o -type p -o -type s')).toBe('');
    for (const empty of ['dev', 'proc', 'sys', 'run', 'tmp']) {
      expect([empty, await readdir(join(template, empty))]).toEqual([empty, []]);
    }
    expect(await readFile(join(template, 'etc/resolv.conf'), 'utf8')).toBe(
      'nameserver 127.0.0.53\n',
    );
    expect((await lstat(join(template, 'tmp'))).mode & 0o7777).toBe(0o1777);
  });

  it(
    'builds again after it was killed in the middle, and leaves nothing when it is abandoned',
    async () => {
      const dir = join(folder, 'killed');
      const program = `
        import { ensureRootfs } from ${JSON.stringify(MODULE)};
        await ensureRootfs({ dir: ${JSON.stringify(dir)}, signal: new AbortController().signal });`;
      const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
        stdio: 'inherit',
      });
      const left = async (): Promise<string[]> =>
        (await readdir(dir).catch(() => [])).filter((name) => name.endsWith('.building'));
      await until(async () => {
        const [draft] = await left();
        return draft !== undefined && existsSync(join(dir, draft, 'debootstrap'));
      });
      child.kill('SIGKILL');
      await new Promise((resolve) => child.once('exit', resolve));
      expect(await left()).toHaveLength(1);

      const controller = new AbortController();
      const messages: string[] = [];
      const again = ensureRootfs({
        dir,
        signal: controller.signal,
        onProgress: (message) => {
          messages.push(message);
          if (message.startsWith('configuring')) controller.abort(new Error('abandoned'));
        },
      });
      await expect(again).rejects.toThrow('abandoned');
      expect(messages).toEqual([
        'waiting for it to be made',
        'downloading the base system',
        'configuring the base system',
      ]);
      await until(async () => (await readdir(dir)).join() === '.lock');
    },
    ROOTFS_TIMEOUT_MS,
  );

  describe('in a sandbox', () => {
    let namespace: RelayedNamespace | undefined;
    afterEach(() => namespace?.close());

    it(
      'installs a package with apt through the relay, its mirrors being all that is allowed',
      async () => {
        const { sources } = await readHostApt();
        const hosts = sources.flatMap(({ uris }) => uris.map((uri) => new URL(uri).hostname));
        namespace = await startRelayedNamespace('adopted', {
          policy: { mode: 'limited', allowedHosts: [...new Set(hosts)] },
          gateways: [],
        });
        const copy = join(folder, 'copy');
        await promisify(execFile)('cp', ['-a', template, copy]);
        const filter = `import('${SECCOMP}').then((m) => process.stdout.write(m.seccompFilter('setup', process.arch)))`;
        const result = await namespace.run(`
          "$NODE" -e "${filter}" > ${folder}/filter
          bwrap --unshare-user --uid 0 --gid 0 --unshare-pid --unshare-ipc --die-with-parent --new-session \\
            --cap-drop ALL --cap-add CAP_DAC_OVERRIDE --cap-add CAP_FOWNER --cap-add CAP_CHOWN --cap-add CAP_SETFCAP \\
            --bind ${copy} / --proc /proc --dev /dev --tmpfs /tmp --tmpfs /run --clearenv \\
            --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin --setenv DEBIAN_FRONTEND noninteractive \\
            --seccomp 7 7<${folder}/filter -- \\
            bash -c 'apt-get -q update && apt-get -q install -y jq && jq -n "1 + 1" && git --version' 2>&1`);
        expect(result).toMatchObject({
          exitCode: 0,
          stdout: expect.stringMatching(/\n2\ngit version/),
        });
        expect(result.stdout).not.toMatch(/^(W|E|Err):/m);
        expect(namespace.refusals).toEqual([]);
      },
      ROOTFS_TIMEOUT_MS,
    );
  });
});

/** Waits for a condition that a process elsewhere brings about. */
async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 200_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error('did not come about');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
