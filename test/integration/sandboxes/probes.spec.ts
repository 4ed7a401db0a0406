import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { SandboxDriver } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { bash, outcomeOf, type DriverUnderTest } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { installDocker } from './docker-installations.js';
import { installAsOrdinaryUser, installHere, isRoot } from './local-installations.js';

const signal = new AbortController().signal;
const x64 = process.arch === 'x64';

/** System calls that must be refused: name, number here, arguments for Perl's `syscall`. */
const REFUSED: readonly (readonly [name: string, number: number, args: string])[] = [
  ['keyctl', x64 ? 250 : 219, '0, -3, 0, 0, 0'],
  ['add_key', x64 ? 248 : 217, '"user", "name", "x", 1, -3'],
  ['bpf', x64 ? 321 : 280, '0, 0, 0'],
  ['perf_event_open', x64 ? 298 : 241, '0, 0, -1, -1, 0'],
  ['userfaultfd', x64 ? 323 : 282, '0'],
  ['io_uring_setup', 425, '1, 0'],
  ['open_by_handle_at', x64 ? 304 : 265, '-100, 0, 0'],
  ['name_to_handle_at', x64 ? 303 : 264, '-100, "/", 0, 0, 0'],
  ['reboot', x64 ? 169 : 142, '0, 0, 0, 0'],
  ['kexec_load', x64 ? 246 : 104, '0, 0, 0, 0'],
  ['init_module', x64 ? 175 : 105, '0, 0, ""'],
  ['swapon', x64 ? 167 : 224, '"/tmp/x", 0'],
  ['pivot_root', x64 ? 155 : 41, '"/", "/"'],
  ['mount', x64 ? 165 : 40, '"none", "/tmp", "tmpfs", 0, 0'],
  ['fsopen', 430, '"tmpfs", 0'],
  ['open_tree', 428, '-100, "/", 1'],
  ['mount_setattr', 442, '-100, "/", 0, 0, 0'],
  ['setns', x64 ? 308 : 268, '0, 0'],
  ['unshare (user)', x64 ? 272 : 97, '0x10000000'],
  ['unshare (net)', x64 ? 272 : 97, '0x40000000'],
  ['clone (user)', x64 ? 56 : 220, '0x10000011, 0, 0, 0, 0'],
  ['clone3', 435, '0, 0'],
  ['syslog', x64 ? 103 : 116, '2, 0, 0'],
  ['TIOCSTI', x64 ? 16 : 29, '0, 0x5412, "x"'],
  ['TIOCSTI, high bits set', x64 ? 16 : 29, '0, 0x100005412, "x"'],
  ['TIOCLINUX', x64 ? 16 : 29, '0, 0x541c, "x"'],
  ['ptrace', x64 ? 101 : 117, '0, 0, 0, 0'],
  ['process_vm_readv', x64 ? 310 : 270, '$$, 0, 0, 0, 0, 0'],
  ['process_vm_writev', x64 ? 311 : 271, '$$, 0, 0, 0, 0, 0'],
  ['pidfd_getfd', 438, '0, 0, 0'],
  ['memfd_secret', 447, '0'],
  ['personality (no randomisation)', x64 ? 135 : 92, '0x40000'],
  ['statmount', 457, '0, 0, 0, 0'],
  ['listmount', 458, '0, 0, 0, 0'],
  ['modules of security', 461, '0, 0, 0'],
  ['one that is not yet invented', 999, '0'],
  ['AF_VSOCK', x64 ? 41 : 198, '40, 1, 0'],
  ['AF_PACKET', x64 ? 41 : 198, '17, 3, 0'],
  ['AF_ALG', x64 ? 41 : 198, '38, 5, 0'],
  ['AF_NETLINK (netfilter)', x64 ? 41 : 198, '16, 3, 12'],
  ['raw socket', x64 ? 41 : 198, '2, 3, 1'],
  ...(x64
    ? ([['mount by the x32 interface', 0x40000000 + 165, '"none", "/tmp", "tmpfs", 0, 0']] as const)
    : []),
];

/** Perl for one system call. Its strings go into variables: `syscall` wants something that the kernel could write to. */
function perlSyscall(number: number, args: string): string {
  const strings: string[] = [];
  const call = args.replaceAll(/"[^"]*"/g, (text) => `$s[${strings.push(text) - 1}]`);
  return `my @s = (${strings.join(', ')}); my $r = syscall(${number}, ${call}); `;
}

function listen(server: Server, where: { host: string; port: number } | string): Promise<Server> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(where, () => resolve(server));
  });
}

/** What a sandbox looks like from inside, where drivers differ. */
interface View {
  /** Folders that stand in the root. */
  root: RegExp;
  /** What is in /home, /opt, /root, /run and /var, as far as it must be so. */
  folders: RegExp;
  /** How /etc/shadow is kept from the agent. */
  shadow: string;
  /** Processes at most, with the probe's own. */
  processes: number;
  uidMap: RegExp;
  /** Is /sys there? It then tells of the machine, and takes nothing. */
  sys: boolean;
}

const LOCAL: View = {
  root: /\/: \.confine bin dev etc home lib (lib\w* )*opt proc root run sbin tmp usr var workspace {2}/,
  folders: /\/home: agent {2}\/opt: {2}\/root: {2}\/run: {2}\/var: tmp/,
  shadow: '/etc/shadow: No such file or directory',
  processes: 5,
  uidMap: /^1000 1$/m,
  sys: false,
};

const CONTAINER: View = {
  root: /\/: \.agent-session \.agent-spool (\.dockerenv )?bin (boot )?dev etc home lib (lib\w* )*/,
  folders: /\/home: agent {2}/,
  shadow: '/etc/shadow: Permission denied',
  // Besides: the container's own two, a supervisor and a follower.
  processes: 9,
  uidMap: /^0 \d+$/m,
  sys: true,
};

function describeProbes(name: string, view: View, make: () => Promise<DriverUnderTest>): void {
  describe(`an agent in a sandbox (${name})`, () => {
    let installation: DriverUnderTest;
    let driver: SandboxDriver;
    let hostFolder: string;
    let victim: ChildProcess;
    let servers: Server[];
    let connections = 0;
    const sandboxId = randomUUID();
    const otherId = randomUUID();
    const secret = `planted-${randomUUID()}`;
    const abstractName = `sandbox-probe-${randomUUID()}`;

    beforeAll(async () => {
      installation = await make();
      ({ driver } = installation);
      process.env['PLANTED_SECRET'] = secret;
      hostFolder = await mkdtemp(join(tmpdir(), 'host-'));
      await chmod(hostFolder, 0o755);
      await writeFile(join(hostFolder, 'secret'), secret);
      victim = spawn('sleep', ['600'], { stdio: 'ignore' });
      const accept = () =>
        createServer((socket) => {
          connections += 1;
          socket.destroy();
        });
      servers = await Promise.all([
        listen(accept(), { host: '127.0.0.1', port: 0 }),
        listen(accept(), { host: '0.0.0.0', port: 0 }),
        listen(accept(), `\0${abstractName}`),
        listen(accept(), join(hostFolder, 'socket')),
      ]);
      await chmod(join(hostFolder, 'socket'), 0o777);
      for (const id of [sandboxId, otherId]) {
        await driver.create({
          sandboxId: id,
          writableRoot: false,
          network: { mode: 'limited', allowedHosts: ['allowed.example', '*.wild.example'] },
          signal,
        });
      }
      await driver.runScript({
        sandboxId: otherId,
        script: `echo ${secret} | tee ~/s > s`,
        as: 'agent',
        signal,
      });
    }, 300_000);

    afterAll(async () => {
      delete process.env['PLANTED_SECRET'];
      victim.kill('SIGKILL');
      for (const server of servers) server.close();
      await rm(hostFolder, { recursive: true });
      for (const id of [sandboxId, otherId]) await driver.destroy({ sandboxId: id, signal });
      await installation.dispose();
    }, 300_000);

    /** Runs a script as the agent; its output, both streams, and its exit code. */
    async function probe(
      script: string,
      stdin = '',
    ): Promise<{ output: string; code: number | null }> {
      const launch = { sandboxId, ...bash(`exec 2>&1\n${script}`, { stdin }) };
      await driver.launch(launch);
      const { stdout, stderr, exit } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
      return { output: stdout + stderr, code: exit.exitCode };
    }

    const portOf = (index: number): number =>
      (servers[index]?.address() as AddressInfo | undefined)?.port ?? 0;

    it('sees no file of the host', async () => {
      const { output } = await probe(`
        cat ${hostFolder}/secret /etc/shadow
        ls -A / /home /root /var /opt /run | tr '\\n' ' '; echo
        ls /sys /boot /mnt /srv /var/run/docker.sock /run/docker.sock; find / -xdev -name docker.sock`);
      expect(output).not.toContain(secret);
      expect(output).not.toMatch(/root:[*!$]/);
      expect(output).toContain(view.shadow);
      expect(output).toMatch(view.root);
      expect(output).toMatch(view.folders);
      expect(output.match(/docker\.sock': No such file/g)).toHaveLength(2);
      if (!view.sys) expect(output).toContain("cannot access '/sys'");
    });

    it('sees neither other sandboxes nor its own spool', async () => {
      const { output, code } = await probe(`
        grep -rs ${secret.slice(0, 20)} /home /workspace /tmp /run /var /mnt && exit 1
        find / -xdev -path /proc -prune -o \\( -name spool -o -name started -o -name sandbox.json -o -name '${otherId}' \\) -print 2>/dev/null | grep -v '^/var/spool$'
        ls /.agent-spool 2>/dev/null; exit 0`);
      expect({ output, code }).toEqual({ output: '', code: 0 });
    });

    it('sees only its own processes, and no secret of the service in them', async () => {
      const { output } = await probe(`
        ls -d /proc/[0-9]* | wc -l
        cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'`);
      expect(Number.parseInt(output, 10)).toBeLessThanOrEqual(view.processes);
      expect(output).toContain('HOME=/home/agent');
      expect(output).not.toContain(secret);
      expect(output).not.toContain('PLANTED');
    });

    it('could change no process that has other limits than its own', async () => {
      const { output } = await probe(`
        limits() { grep -E '^Max (core|open|processes)' $1/limits; cat $1/oom_score_adj; }
        own=$(limits /proc/self)
        for p in /proc/[0-9]*; do
          [ ! -O $p ] || [ ! -d $p ] || [ "$(limits $p)" = "$own" ] || { echo $p; limits $p; }
        done; echo looked`);
      expect(output).toBe('looked\n');
    });

    it('can neither signal nor trace a process of the host', async () => {
      const { output } = await probe(
        `kill -9 ${victim.pid} || echo refused; perl -e 'syscall(${x64 ? 101 : 117}, 16, ${victim.pid}, 0, 0) == 0 ? print "traced" : print "not traced"'`,
      );
      expect(output).toMatch(/No such process\nrefused\nnot traced$/);
      expect(victim.exitCode ?? victim.signalCode).toBeNull();
    });

    it('reaches no port and no socket of the host', async () => {
      const lan = Object.values(networkInterfaces())
        .flat()
        .find((each) => each?.family === 'IPv4' && !each.internal);
      const tcp = (host: string, port: number): string =>
        `timeout 3 bash -c 'exec 3<>/dev/tcp/${host}/${port}' 2>/dev/null && echo "REACHED ${host}"`;
      const { output } = await probe(`
        ${tcp('127.0.0.1', portOf(0))}
        ${tcp('127.0.0.1', portOf(1))}
        ${tcp('::1', portOf(1))}
        ${lan ? tcp(lan.address, portOf(1)) : ':'}
        ${tcp('169.254.169.254', 80)}
        ${tcp('8.8.8.8', 53)}
        perl -MSocket -e '
          for my $name ("\\0${abstractName}", "${hostFolder}/socket") {
            socket(my $s, PF_UNIX, SOCK_STREAM, 0); print "REACHED $name" if connect($s, pack_sockaddr_un($name));
          }
          socket(my $u, PF_INET, SOCK_DGRAM, 0);
          print "SENT" if send($u, "x", 0, pack_sockaddr_in(53, inet_aton("8.8.8.8")));'
        echo done`);
      expect(output).toBe('done\n');
      expect(connections).toBe(0);
    });

    it('resolves the names it may reach, and nothing else', async () => {
      const { output } = await probe(`
        for name in allowed.example a.wild.example wild.example other.example c2VjcmV0.allowed.example.evil.test; do
          getent hosts $name | cut -d. -f1-2; echo "$name \${PIPESTATUS[0]}"
        done`);
      expect(output).toBe(
        [
          '127.64',
          'allowed.example 0',
          '127.64',
          'a.wild.example 0',
          'wild.example 2',
          'other.example 2',
          'c2VjcmV0.allowed.example.evil.test 2',
          '',
        ].join('\n'),
      );
    });

    it('has no rights', async () => {
      const { output } = await probe(`
        id -u; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'
        cat /proc/self/uid_map | awk '{print $1, $3}'`);
      const none = '0000000000000000';
      expect(output).toMatch(view.uidMap);
      expect(output.replace(view.uidMap, '')).toBe(
        `1000\nCapInh:${none}\nCapPrm:${none}\nCapEff:${none}\nCapBnd:${none}\nCapAmb:${none}\nNoNewPrivs:1\nSeccomp:2\n\n`,
      );
    });

    it('gains none by setuid programs', async () => {
      const { output } = await probe(`
        found=$(find /usr/bin /usr/sbin -perm -4000 | head -1); echo "$found" >&2
        cp "$(command -v id)" /tmp/id; chmod 4755 /tmp/id; /tmp/id -u
        su -c 'id -u' </dev/null; echo "su $?"`);
      expect(output).toMatch(/1000\n[^]*su [1-9]\d*\n$/);
    });

    it('makes neither mounts nor namespaces nor devices', async () => {
      const { output } = await probe(`
        mount -t tmpfs none /tmp 2>/dev/null && echo MOUNTED
        unshare -Ur true 2>/dev/null && echo USER; unshare -Urn true 2>/dev/null && echo NET
        unshare -m true 2>/dev/null && echo MNT
        mknod /tmp/disk b 8 0 2>/dev/null && echo DEVICE; mknod /workspace/disk b 254 0 2>/dev/null && echo DEVICE
        head -c 1 /dev/mem /dev/kmsg /dev/sda /dev/vda 2>/dev/null && echo READ
        ls /dev | tr '\\n' ' '`);
      const devices = ['console', 'core', 'fd', 'full', 'null', 'ptmx', 'pts', 'random', 'shm'];
      devices.push('mqueue', 'stderr', 'stdin', 'stdout', 'tty', 'urandom', 'zero');
      expect(devices).toEqual(expect.arrayContaining(output.trim().split(' ')));
      expect(output).not.toMatch(/MOUNTED|USER|NET|MNT|DEVICE|READ/);
    });

    it('changes nothing of the kernel', async () => {
      const pattern = readFileSync('/proc/sys/kernel/core_pattern', 'utf8');
      const { output } = await probe(`
        for file in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sysrq-trigger /proc/sys/kernel/hostname; do
          bash -c "echo x > $file" 2>/dev/null && echo "WROTE $file"
        done
        find / -xdev -name release_agent 2>/dev/null; find /sys -writable 2>/dev/null; dmesg 2>/dev/null | head -1`);
      expect(output).toBe('');
      expect(readFileSync('/proc/sys/kernel/core_pattern', 'utf8')).toBe(pattern);
    });

    it('is refused every dangerous system call', async () => {
      const calls = REFUSED.map(
        ([call, number, args]) =>
          `${perlSyscall(number, args)} print "${call}: ", ($r < 0 ? "refused" : "DONE"), "\\n";`,
      );
      // One process each: the filter may end the process as well as refuse.
      const { output } = await probe(
        calls.map((line) => `perl -e '${line}' || echo ended`).join('\n'),
      );
      expect(output.trim().split('\n')).toEqual(REFUSED.map(([call]) => `${call}: refused`));
    });

    it('is refused by the filter, not only for want of rights', async () => {
      // Without the filter these give EFAULT or EINVAL, or succeed: they need no rights.
      const errno = async (number: number, args: string) =>
        (await probe(`perl -e '${perlSyscall(number, args)} print $!+0'`)).output;
      const EPERM = '1';
      expect(await errno(x64 ? 250 : 219, '0, -3, 0, 0, 0')).toBe(EPERM);
      expect(await errno(x64 ? 272 : 97, '0x10000000')).toBe(EPERM);
      expect(await errno(x64 ? 303 : 264, '-100, "/", 0, 0, 0')).toBe(EPERM);
      expect(await errno(x64 ? 101 : 117, '0, 0, 0, 0')).toBe(EPERM);
      expect(await errno(x64 ? 310 : 270, '$$, 0, 0, 0, 0, 0')).toBe(EPERM);
      expect(await errno(438, '-1, 0, 0')).toBe(EPERM);
      expect(await errno(x64 ? 135 : 92, '0x40000')).toBe(EPERM);
      expect(await errno(447, '0')).toBe('38');
      expect(await errno(435, '0, 0')).toBe('38');
      expect(await errno(x64 ? 41 : 198, '38, 5, 0')).toBe('97');
    });

    it('writes nowhere but in its own folders', async () => {
      const { output } = await probe(`
        for folder in / /usr /usr/local/bin /etc /dev /home /opt /root /var /bin; do
          touch $folder/probe 2>/dev/null && echo "WROTE $folder"
        done
        rmdir /workspace 2>/dev/null; mv /home/agent /home/other 2>/dev/null; rm -rf /workspace 2>/dev/null
        ln -s /etc /workspace/etc; ln -s / ~/root; ls -d /workspace /home/agent`);
      expect(output).toBe('/home/agent\n/workspace\n');
      // What it planted leads the next launch nowhere.
      expect((await probe('pwd; ls -A ~ | tr "\\n" " "; readlink ~/root')).output).toMatch(
        /^\/workspace\n.*root .*\/\n$/s,
      );
      expect(existsSync('/etc/probe')).toBe(false);
    });

    it('does not spoil its output', async () => {
      const { output, code } = await probe(`
        echo before; truncate -s 0 /proc/self/fd/1 2>/dev/null; perl -e 'truncate(STDOUT, 0); seek(STDOUT, 0, 0)'
        : > /dev/stdout; echo after`);
      expect({ output, code }).toEqual({ output: 'before\nafter\n', code: 0 });
    });

    it('has bounded memory for files', async () => {
      const { output } = await probe(`
        for path in /dev/shm/fill /run/fill; do
          head -c 64M /dev/zero 2>/dev/null > $path; echo "$path $(($(stat -c %s $path 2>/dev/null || echo 0) / 1048576))"
        done; touch /dev/fill 2>/dev/null && echo WROTE`);
      expect(output).toMatch(/^\/dev\/shm\/fill 1[56]\n\/run\/fill [01]\n$/);
    });
  });
}

if (isRoot) {
  describeProbes('local, root', LOCAL, () => installHere('strict'));
  describeProbes('local, ordinary user', LOCAL, () => installAsOrdinaryUser('strict'));
} else {
  describeProbes('local, ordinary user', LOCAL, () => installHere('strict'));
  it.skip('SKIPPED: only a test run as root can probe sandboxes of a root service', () =>
    undefined);
}

describeWith(['a Docker engine', 'root', 'debootstrap'], 'in a container', () => {
  describeProbes('docker', CONTAINER, () => installDocker());
});
