import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { SandboxDriver } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { findHostGroups } from '../../../src/sandboxes/driver/local/cgroups/host-groups.js';
import { SandboxGroups } from '../../../src/sandboxes/driver/local/cgroups/sandbox-groups.js';
import { processesOfUser } from '../../../src/supervisor/processes.js';
import { bash, outcomeOf, type DriverUnderTest } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { installDocker } from './docker-installations.js';
import { installAsOrdinaryUser, installHere, isRoot, TEST_LIMITS } from './local-installations.js';

const signal = new AbortController().signal;
const MiB = 1024 * 1024;
const LIMITS = { ...TEST_LIMITS, memoryBytes: 128 * MiB };
const OPEN = { mode: 'unrestricted', allowedHosts: [] } as const;

/** Says into which processes it was loaded: with which user and which limits they ran. */
const SPY = `
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
  struct rlimit files, core;
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_CORE, &core);
  int fd = open(getenv("SPY_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0666);
  dprintf(fd, "%d %d %d\\n", (int)geteuid(), (int)files.rlim_max, (int)core.rlim_max);
  close(fd);
}`;

async function compileSpy(): Promise<Buffer> {
  const folder = await mkdtemp(join(tmpdir(), 'spy-'));
  try {
    await writeFile(join(folder, 'spy.c'), SPY);
    const library = join(folder, 'spy.so');
    execFileSync('cc', ['-shared', '-fPIC', '-o', library, join(folder, 'spy.c')]);
    return readFileSync(library);
  } finally {
    await rm(folder, { recursive: true });
  }
}

const X64 = process.arch === 'x64';
const SEGMENT = 'a System V segment that nobody maps';
const MEMFD = `my $name = "x"; my $fd = syscall(${X64 ? 319 : 279}, $name, 0); open(my $f, ">&=", $fd);
    for (1 .. 300) { syswrite($f, "x" x 1048576) == 1048576 or die "$!" }`;
/** Writes twice the disk limit to a file without a name. */
const UNLINKED = `open(my $f, ">", "held"); unlink "held"; for (1 .. 512) { syswrite($f, "x" x 1048576) }`;
/** Ways of holding 300 MiB in Perl that resident memory of single processes does not show. */
const HOARDS: Readonly<Record<string, string>> = {
  'a memfd that nobody maps': MEMFD,
  [SEGMENT]: `
    my $id = shmget(0, 314572800, 01600) // die "$!";
    for my $i (0 .. 299) { shmwrite($id, "x" x 1048576, $i * 1048576, 1048576) or die "$!" }`,
  'processes that share nothing': `
    for (1 .. 10) { next if fork; my $x = "x" x 31457280; sleep 20; exit } `,
};

function describeLimits(name: string, make: () => Promise<DriverUnderTest>): void {
  describe(`limits: ${name}`, () => {
    let installation: DriverUnderTest;
    let driver: SandboxDriver;
    let sandboxId: string;

    beforeAll(async () => {
      installation = await make();
      ({ driver } = installation);
      sandboxId = randomUUID();
      await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
    }, 300_000);

    afterAll(async () => {
      await driver.destroy({ sandboxId, signal });
      await driver.close();
      await installation.dispose();
    });

    async function run(script: string, env: Record<string, string> = {}) {
      const launch = { sandboxId, ...bash(script, { env }) };
      await driver.launch(launch);
      return outcomeOf(driver.follow({ ...launch, offset: 0 }));
    }

    it('loads no code of the agent where it has more rights, or no limits', async () => {
      const { home } = driver.layout(sandboxId);
      const fake =
        '#!/bin/bash\necho "ran $0 as $EUID" >>"$SPY_LOG"\nexec /usr/bin/"${0##*/}" "$@"\n';
      await driver.writeFiles({
        sandboxId,
        signal,
        files: [
          { path: `${home}/spy.so`, content: await compileSpy(), mode: 0o755 },
          ...['setpriv', 'sh', 'bwrap', 'mkfifo'].map((program) => ({
            path: `${home}/.local/bin/${program}`,
            content: fake,
            mode: 0o755,
          })),
        ],
      });
      const env = { LD_PRELOAD: `${home}/spy.so`, SPY_LOG: `${home}/spy.log` };
      const { stdout, exit } = await run('id -u; cat "$SPY_LOG"', env);
      expect(exit).toMatchObject({ reason: 'exited', exitCode: 0 });
      const [agent, ...loaded] = stdout.trim().split('\n');
      // bash, id and cat: the library does get loaded.
      expect(loaded.length).toBeGreaterThanOrEqual(3);
      expect(new Set(loaded)).toEqual(new Set([`${agent} ${LIMITS.openFiles} 0`]));
      await run('rm -r ~/.local/bin ~/spy.so');
    });

    it("runs none of the agent's programs to write files and to look programs up", async () => {
      const { home } = driver.layout(sandboxId);
      const programs = ['bash', 'sh', 'mkdir', 'rm', 'head', 'chmod', 'mv', 'here'];
      await run(`mkdir -p ~/.local/bin; cd ~/.local/bin
        for p in ${programs.join(' ')}; do printf '#!/bin/dash\\necho $0 >>~/ran\\n' >$p; done; /bin/chmod +x *`);
      const path = `${home}/made/by/us`;
      await driver.writeFiles({ sandboxId, signal, files: [{ path, content: 'written' }] });
      const here = { bin: 'here', package: 'none', version: '0.0.0', entries: [] };
      await driver.providePrograms({ sandboxId, signal, network: OPEN, programs: [here] });
      const { stdout } = await run('/bin/cat ~/made/by/us; /bin/cat ~/ran');
      await run('/bin/rm -r ~/.local/bin ~/made');
      expect(stdout).toBe('written');
    });

    it('gives it an input that it cannot write to', async () => {
      const launch = {
        sandboxId,
        ...bash(
          'exec 9>>/proc/$$/fd/0 && echo x >&9 && echo BREACH; cat; stat -Lc %s /proc/$$/fd/0',
          {
            stdin: 'four',
          },
        ),
      };
      await driver.launch(launch);
      const { stdout } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
      expect(stdout).toBe('four4\n');
    });

    it.each(Object.keys(HOARDS))('ends who takes too much memory as %s', async (hoard) => {
      // Nothing in /proc shows a segment that nobody has attached; only the kernel's own limit counts it.
      const { memory } = await driver.limits({ signal });
      if (hoard === SEGMENT && memory !== 'hard') return;
      const { stdout, exit } = await run(
        `perl -e '$SIG{CHLD} = "IGNORE"; ${HOARDS[hoard] ?? ''} sleep 3; print "survived\\n"; sleep 20'`,
      );
      // A container outlives its launches: there, such a segment goes as soon as it is written to.
      const gone = hoard === SEGMENT && driver.name === 'docker';
      expect({ stdout, exit }).toEqual({
        stdout: '',
        exit: gone
          ? { kind: 'exit', reason: 'exited', exitCode: 22 }
          : { kind: 'exit', reason: 'memory_limit', exitCode: null },
      });
    });

    it.each([
      ['memory', MEMFD],
      ['disk', UNLINKED],
    ])('ends who hides how much %s it takes', async (what, hoard) => {
      // Two ways to hide from inspection: by a system call, and by a program file that may be executed but not read.
      const closes = [`syscall(${X64 ? 157 : 167}, 4, 0)`, ''];
      for (const close of closes) {
        const { exit } = await run(`cp $(command -v perl) ~/closed; chmod 111 ~/closed
          ${close === '' ? '~/closed' : 'perl'} -e '${close}; ${hoard}; sleep 20'`);
        // For hidden resources, either reason may be reported.
        const reasons = close === '' ? ['memory_limit', 'disk_limit'] : [`${what}_limit`];
        expect(reasons).toContain(exit.reason);
      }
    });

    it('lets nothing outlive its launch, whatever it calls itself', async () => {
      await run(`
        (SANDBOX_LAUNCH=bogus setsid sleep 605 &)
        (env -i setsid /bin/sh -c 'trap "" TERM HUP; sleep 605 & sleep 605; :' &)
        setsid bash -c '(setsid sleep 605 &) ; exit' & sleep 0.2`);
      const { stdout } = await run('ps -eo args | grep -c "[s]leep 605"');
      expect(stdout).toBe('0\n');
    });

    it('says how it keeps limits', async () => {
      const { memory, processes } = await driver.limits({ signal });
      expect(['hard', 'monitored']).toContain(memory);
      expect(['hard', 'unlimited']).toContain(processes);
    });
  });
}

if (isRoot) {
  describeLimits('local, strict, root', () => installHere('strict', LIMITS));
  describeLimits('local, degraded, root', () => installHere('degraded', LIMITS));
  describeLimits('local, strict, ordinary user', () => installAsOrdinaryUser('strict', LIMITS));
  describeLimits('local, degraded, ordinary user', () => installAsOrdinaryUser('degraded', LIMITS));
} else {
  describeLimits('local, strict, ordinary user', () => installHere('strict', LIMITS));
}
describeWith(['a Docker engine', 'root', 'debootstrap'], 'in a container', () => {
  describeLimits('docker', () => installDocker({ limits: LIMITS }));
});

(isRoot ? it : it.skip)(
  'nothing else runs as the user of a sandbox when a launch begins, and when it has ended',
  async () => {
    const { driver, dispose } = await installHere('degraded', LIMITS);
    const sandboxId = randomUUID();
    await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
    const { home } = driver.layout(sandboxId);
    const asked = { sandboxId, ...bash('id -u') };
    await driver.launch(asked);
    const uid = Number((await outcomeOf(driver.follow({ ...asked, offset: 0 }))).stdout);
    /** Is below no supervisor, like what a supervisor leaves that was killed. */
    const makeOrphan = async (): Promise<number | undefined> => {
      const orphan = spawn('/bin/sleep', ['60'], { uid, gid: uid, cwd: '/', stdio: 'ignore' });
      await once(orphan, 'spawn');
      return orphan.pid;
    };
    const before = await makeOrphan();
    let during: number | undefined;
    const launch = {
      sandboxId,
      ...bash('echo up; until [ -e ~/go ]; do sleep 0.1; done'),
    };
    await driver.launch(launch);
    for await (const event of driver.follow({ ...launch, offset: 0 })) {
      if (event.kind === 'exit') break;
      expect(processesOfUser(uid)).not.toContain(before);
      during = await makeOrphan();
      await driver.writeFiles({ sandboxId, signal, files: [{ path: `${home}/go`, content: '' }] });
    }
    expect(during).toBeDefined();
    expect(processesOfUser(uid)).toEqual([]);
    await driver.destroy({ sandboxId, signal });
    await driver.close();
    await dispose();
  },
);

describe('control groups of launches', () => {
  const host = findHostGroups(
    readFileSync('/proc/self/mountinfo', 'utf8'),
    readFileSync('/proc/self/cgroup', 'utf8'),
  );
  const split = isRoot && host?.version === 1 ? host.folders : undefined;
  const groups = (stateDir: string): string[] =>
    Object.values(split ?? {}).flatMap((folder) =>
      readdirSync(folder)
        .filter((name) => name.startsWith('agent-sessions-'))
        .flatMap((name) => readdirSync(join(folder, name)).map((group) => join(name, group)))
        .filter((path) => path.includes(stateDir)),
    );

  (split === undefined ? it.skip : it)(
    'hold a launch while it runs, are gone when it ends, and cleared when nobody did',
    async () => {
      const installation = await installHere('strict', LIMITS);
      const { driver } = installation;
      const sandboxId = randomUUID();
      await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
      const launch = { sandboxId, ...bash('cat /proc/self/cgroup; sleep 1') };
      await driver.launch(launch);
      expect(groups(sandboxId).length).toBe(Object.keys(split ?? {}).length);
      expect(await driver.limits({ signal })).toMatchObject({ memory: 'hard', processes: 'hard' });
      const { stdout } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
      for (const controller of ['memory', 'pids', 'cpu']) {
        expect(stdout).toMatch(new RegExp(`:${controller}:.*${launch.launchId}`));
      }
      expect(groups(sandboxId)).toEqual([]);
      await driver.destroy({ sandboxId, signal });
      await installation.dispose();
    },
  );

  (split === undefined ? it.skip : it)(
    'are removed when a service was killed, and no sooner',
    async () => {
      const stateDir = `/no/such/folder/${randomUUID()}`;
      const dead = new SandboxGroups(stateDir);
      const made = await dead.make('leftover.launch', LIMITS, undefined, null);
      const procs = made?.launch.procs[0] ?? '';
      const folder = procs.replace(/\/cgroup\.procs$/, '');
      const next = new SandboxGroups(stateDir);
      await next.removeEmpty();
      // It may be about to be joined.
      expect(existsSync(folder)).toBe(true);
      const longAgo = new Date(Date.now() - 600_000);
      for (const file of [...(made?.launch.procs ?? []), ...(made?.supervisor ?? [])]) {
        await utimes(file.replace(/\/cgroup\.procs$/, ''), longAgo, longAgo);
      }
      await next.removeEmpty();
      expect(existsSync(folder)).toBe(false);
      await next.close();
    },
  );
});
