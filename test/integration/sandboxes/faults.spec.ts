import { execFileSync, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import {
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { LaunchFolder } from '../../../src/supervisor/launch-folder.js';
import type { LocalSandboxDriver } from '../../../src/sandboxes/driver/local/local-sandbox-driver.js';
import type { LocalSandboxOptions } from '../../../src/sandboxes/driver/local/options.js';
import type { LaunchOptions } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { bash, outcomeOf, type Outcome } from '../../contracts/sandbox-driver.contract.js';
import { commandOf } from '../../support/sandbox-processes.js';
import { DriverProcess } from './driver-in-process.js';
import { closeDrivers, newDriver, newOptions } from './local-installations.js';

const MiB = 1024 * 1024;
const signal = new AbortController().signal;

/** Processes of this machine whose arguments hold the text, zombies left out. */
function processesWith(text: string): number[] {
  return readdirSync('/proc')
    .filter((name) => {
      if (!/^\d+$/.test(name) || Number(name) === process.pid) return false;
      try {
        return readFileSync(`/proc/${name}/cmdline`, 'latin1').includes(text);
      } catch {
        return false;
      }
    })
    .map(Number);
}

/** Loop devices whose file is below a folder, or was. */
function loopDevicesOf(folder: string): string[] {
  return readdirSync('/sys/block').filter((name) => {
    try {
      const path = `/sys/block/${name}/loop/backing_file`;
      return name.startsWith('loop') && readFileSync(path, 'utf8').startsWith(folder);
    } catch {
      return false;
    }
  });
}

/** What is to end is what sleeps for hours, so the limit tells only a leak from a busy machine. */
async function untilNone(find: () => readonly unknown[]): Promise<void> {
  const until = Date.now() + 60_000;
  while (find().length > 0 && Date.now() < until) await delay(20);
  expect(find()).toEqual([]);
}

describe('local sandboxes on bad days', () => {
  let options: LocalSandboxOptions;
  let driver: LocalSandboxDriver;
  let sandboxId: string;

  beforeEach(async () => {
    options = await newOptions('strict');
    options.limits = { ...options.limits, diskBytes: 64 * MiB, memoryBytes: 256 * MiB };
    driver = newDriver(options);
    sandboxId = randomUUID();
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    await driver.create({ sandboxId, writableRoot: false, network, signal });
  });

  /** Whatever a test did: nothing of it is left. */
  afterEach(async () => {
    await driver.destroy({ sandboxId, signal });
    await closeDrivers();
    await untilNone(() => processesWith(options.stateDir));
    await untilNone(() => processesWith(sandboxId));
    expect(loopDevicesOf(options.stateDir)).toEqual([]);
    expect(readFileSync('/proc/self/mountinfo', 'utf8')).not.toContain(options.stateDir);
    expect(
      readdirSync(options.stateDir).filter((name) => !['.etc', '.uids', '.probe'].includes(name)),
    ).toEqual([]);
    if (process.getuid?.() === 0) expect(readdirSync(join(options.stateDir, '.uids'))).toEqual([]);
    await rm(options.stateDir, { recursive: true });
  });

  async function launch(script: string, more: Partial<LaunchOptions> = {}) {
    const launched = { sandboxId, ...bash(script, more) };
    await driver.launch(launched);
    return launched;
  }

  async function run(script: string, more: Partial<LaunchOptions> = {}): Promise<Outcome> {
    return outcomeOf(driver.follow({ ...(await launch(script, more)), offset: 0 }));
  }

  function folderOf(launchId: string): LaunchFolder {
    return new LaunchFolder(join(options.stateDir, sandboxId, 'launches', launchId));
  }

  function supervisorOf(launchId: string): number {
    const started = folderOf(launchId).readStart();
    if (started === null || 'abandoned' in started) throw new Error('not launched');
    return started.supervisor.pid;
  }

  it('loses a launch whose supervisor is killed, long before its deadline, and no process of it stays', async () => {
    const marker = `9${Date.now()}`;
    const launched = await launch(
      `trap '' TERM; setsid sleep ${marker} & echo up; sleep ${marker}`,
    );
    const events = driver.follow({ ...launched, offset: 0 });
    expect((await events.next()).value).toMatchObject({ kind: 'chunk' });
    expect(processesWith(marker).length).toBeGreaterThan(0);
    process.kill(supervisorOf(launched.launchId), 'SIGKILL');
    expect((await events.next()).value).toEqual({ kind: 'exit', reason: 'lost', exitCode: null });
    expect(Date.now()).toBeLessThan(launched.deadline);
    await untilNone(() => processesWith(marker));
  });

  it('keeps a launch that outlives the service, with all its output', async () => {
    const service = await DriverProcess.start(options, null);
    const launched = { sandboxId, ...bash('for i in $(seq 40); do echo $i; sleep 0.02; done') };
    await service.driver.launch(launched);
    let offset = 0;
    let text = '';
    for await (const event of service.driver.follow({ ...launched, offset })) {
      if (event.kind === 'chunk') {
        text += event.data.toString();
        offset = event.nextOffset;
      }
      if (text.includes('10\n')) break;
    }
    await service.stop('SIGKILL');
    const rest = await outcomeOf(driver.follow({ ...launched, offset }));
    expect(text + rest.stdout).toBe(Array.from({ length: 40 }, (_, i) => `${i + 1}\n`).join(''));
    expect(rest.exit).toMatchObject({ reason: 'exited', exitCode: 0 });
  });

  it('shows no secret in any argument or file', async () => {
    const secret = `s3cret-${randomUUID()}`;
    const script = 'echo up; read -r word; [ ${#word} -gt 8 ] && sleep 20';
    const launched = await launch(script, { env: { KEY: secret }, stdin: `${secret}\n` });
    const events = driver.follow({ ...launched, offset: 0 });
    await events.next();
    const path = join(options.stateDir, sandboxId);
    const found = spawnSync('grep', ['-rls', '--devices=skip', secret, path], { encoding: 'utf8' });
    const supervisor = readFileSync(`/proc/${supervisorOf(launched.launchId)}/environ`, 'utf8');
    expect({ files: found.stdout, processes: processesWith(secret) }).toEqual({
      files: '',
      processes: [],
    });
    expect(supervisor).not.toContain(secret);
    await driver.kill(launched);
    await events.return(undefined);
  });

  it('lets no setup script outlive the service, which will run it again', async () => {
    const marker = `8${Date.now()}`;
    const service = await DriverProcess.start(options, null);
    const script = service.driver.runScript({
      sandboxId,
      script: `sleep ${marker}`,
      as: 'setup',
      signal,
    });
    const failed = expect(script).rejects.toThrow('has ended');
    while (processesWith(marker).length === 0) await delay(20);
    await service.stop('SIGKILL');
    await failed;
    await untilNone(() => processesWith(marker));
  });

  it('passes no descriptor on that the service was started with', async () => {
    const service = await DriverProcess.start(options, null, '/etc/hostname');
    const launched = { sandboxId, ...bash('ls -l /proc/self/fd /proc/1/fd') };
    await service.driver.launch(launched);
    const { stdout } = await outcomeOf(driver.follow({ ...launched, offset: 0 }));
    await service.stop();
    expect(stdout).toContain('0 ->');
    expect(stdout).not.toContain('hostname');
  });

  it('leaves nothing of what is aborted, however early', async () => {
    const files = [{ path: '/home/agent/file', content: Buffer.from('x'), mode: 0o600 }];
    const attempts = Array.from({ length: 60 }, async (_attempt, index) => {
      const abort = new AbortController();
      const written = driver.writeFiles({ sandboxId, files, signal: abort.signal });
      setTimeout(() => abort.abort(), index % 15);
      await written.catch((error: unknown) => {
        expect(error).toMatchObject({ kind: 'aborted' });
      });
    });
    // Each of them settles, and the check after every test finds no process of theirs.
    await Promise.all(attempts);
  });

  it('holds a fork bomb', async () => {
    const { exit } = await run('bomb() { bomb | bomb & }; bomb; while :; do sleep 1; done', {
      deadline: Date.now() + 2500,
    });
    expect(exit.reason).toBe('deadline');
    expect(execFileSync('/bin/echo', ['the host still forks']).toString()).toContain('forks');
  });

  it('limits processes', async () => {
    const { stdout } = await run(
      'n=0; for i in $(seq 150); do sleep 5 & n=$((n+1)); done 2>/dev/null; jobs -r | wc -l',
    );
    expect(Number(stdout)).toBeLessThan(100);
  });

  it('denies a process more memory than the limit', async () => {
    const { stdout, exit } = await run(`perl -e '$x = "a" x (400 << 20); print length $x'`);
    expect(stdout).toBe('');
    // The kernel refuses it, or on a busy machine the watch has seen it first.
    expect(['exited', 'memory_limit']).toContain(exit.reason);
    expect(exit.exitCode).not.toBe(0);
  });

  it('ends a launch whose processes together take too much memory', async () => {
    const { exit } = await run(
      `for i in 1 2 3 4; do perl -e '$x = "a" x (100 << 20); sleep 20' & done; wait; echo all`,
    );
    expect(exit).toEqual({ kind: 'exit', reason: 'memory_limit', exitCode: null });
  });

  it.each([
    ['a big file', 'cat /dev/zero > big'],
    ['many files', 'for i in $(seq 40000); do : > $i; done; sleep 20'],
    // It stays after its disk is full: the file goes with the program, which may be faster than the watch.
    ['a file without a name', 'exec 3> gone; rm gone; cat /dev/zero >&3; sleep 20'],
    ['a folder that it closes', 'mkdir shut; exec 3> shut/x; chmod 000 shut; cat /dev/zero >&3'],
  ])('ends a launch that fills the disk with %s', async (_, script) => {
    const { exit } = await run(script, { deadline: Date.now() + 30_000 });
    expect(exit).toEqual({ kind: 'exit', reason: 'disk_limit', exitCode: null });
  });

  it('lets nothing past the end of its disk, even if nobody watches', async () => {
    if ((await driver.diskLimit()).kind !== 'hard') return;
    const marker = `7${Date.now()}`;
    const launched = await launch(
      `echo up; until [ -e ~/go-on ]; do sleep 0.02; done; exec 2>/dev/null
       cat /dev/zero > ~/big; cat /dev/zero > /tmp/big; sleep ${marker}`,
    );
    const events = driver.follow({ ...launched, offset: 0 });
    await events.next();
    const supervisor = supervisorOf(launched.launchId);
    process.kill(supervisor, 'SIGSTOP');
    await driver.runScript({ sandboxId, script: 'touch ~/go-on', as: 'agent', signal });
    // It sleeps when both disks are full.
    while (!processesWith(marker).some((pid) => commandOf(pid) === `sleep ${marker} `))
      await delay(20);
    const image = join(options.stateDir, sandboxId, 'disk.img');
    const size = (): number => statSync(image).blocks * 512;
    for (let before = -1; before < size();) {
      before = size() < MiB ? -1 : size();
      await delay(2000);
    }
    expect(size()).toBeGreaterThan(100 * MiB);
    expect(size()).toBeLessThan(180 * MiB);
    process.kill(supervisor, 'SIGCONT');
    expect((await events.next()).value).toMatchObject({ kind: 'exit', reason: 'disk_limit' });
  });

  it('gives what is deleted back to the host', async () => {
    if ((await driver.diskLimit()).kind !== 'hard') return;
    const size = (): number => statSync(join(options.stateDir, sandboxId, 'disk.img')).blocks * 512;
    expect(size()).toBeLessThan(MiB);
    await run('head -c 40M /dev/urandom > big; sync');
    expect(size()).toBeGreaterThan(40 * MiB);
    await run('rm big; sync');
    await driver.runScript({ sandboxId, script: 'true', as: 'agent', signal });
    expect(size()).toBeLessThan(4 * MiB);
  });

  it('keeps the disk of a sandbox that many enter at once whole', async () => {
    const lines = Array.from({ length: 12 }, (_, i) => `line ${i}`);
    await Promise.all(
      lines.map((line) => run(`for i in $(seq 20); do echo ${line} >> ~/log; done; sync`)),
    );
    const { stdout } = await run('sort ~/log | uniq -c | wc -l; wc -l < ~/log');
    expect(stdout).toBe('12\n240\n');
  });

  it('goes on with a sandbox that was made before sandboxes had file systems and a /tmp of their own', async () => {
    const path = join(options.stateDir, sandboxId);
    const record = JSON.parse(readFileSync(join(path, 'sandbox.json'), 'utf8')) as {
      uid: number | null;
      disk?: string;
    };
    for (const name of ['home', 'workspace']) {
      mkdirSync(join(path, name), { mode: 0o700 });
      if (record.uid !== null) chownSync(join(path, name), record.uid, record.uid);
    }
    await rm(join(path, 'files'), { recursive: true });
    await rm(join(path, 'disk.img'), { force: true });
    delete record.disk;
    writeFileSync(join(path, 'sandbox.json'), JSON.stringify(record));
    expect((await run('echo a > ~/a; echo b > b; echo c > /tmp/c')).exit.exitCode).toBe(0);
    expect((await run('cat ~/a b /tmp/c')).stdout).toBe('a\nb\nc\n');
    expect(readdirSync(path).toSorted()).toEqual([
      ...['home', 'launches', 'sandbox.json', 'tmp', 'workspace'],
    ]);
    const { exit } = await run('head -c 100M /dev/zero > /tmp/big; sleep 20');
    expect(exit.reason).toBe('disk_limit');
  });

  it('ends a flood of 1 GB at the output limit', async () => {
    const { chunks, exit } = await run('head -c 1G /dev/zero', { outputLimit: 32 * MiB });
    expect(exit.reason).toBe('output_limit');
    expect(chunks.reduce((sum, { data }) => sum + data.length, 0)).toBe(32 * MiB);
  });

  it('reads no spool that is a link or a pipe', async () => {
    for (const replace of [
      (path: string) => symlinkSync('/etc/passwd', path),
      (path: string) => void execFileSync('mkfifo', [path]),
      (path: string) => mkdirSync(path),
    ]) {
      const launched = await launch('echo real');
      await outcomeOf(driver.follow({ ...launched, offset: 0 }));
      const { spool } = folderOf(launched.launchId);
      renameSync(spool, `${spool}.away`);
      replace(spool);
      expect(await outcomeOf(driver.follow({ ...launched, offset: 0 }))).toMatchObject({
        chunks: [],
        exit: { exitCode: 0 },
      });
    }
  });

  it('lets a sandbox reach a gateway of the operator on loopback, and nothing beside it', async () => {
    const { createServer } = await import('node:http');
    const servers = await Promise.all(
      ['gateway', 'other'].map(
        (name) =>
          new Promise<import('node:http').Server>((resolve) => {
            const server = createServer((_request, response) => response.end(name));
            server.listen(0, '127.0.0.1', () => resolve(server));
          }),
      ),
    );
    const [gateway = 0, other = 0] = servers.map(
      (server) => (server.address() as { port: number }).port,
    );
    const served = newDriver({
      ...options,
      gateways: [{ host: '127.0.0.1', port: gateway }],
    });
    const get = (port: number): string =>
      `exec 3<>/dev/tcp/127.0.0.1/${port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && tail -n1 <&3; exec 3>&-`;
    const launched = {
      sandboxId,
      ...bash(`(${get(gateway)}); (${get(other)}) 2>/dev/null; echo " end"`),
    };
    await served.launch(launched);
    const { stdout } = await outcomeOf(served.follow({ ...launched, offset: 0 }));
    for (const server of servers) server.close();
    expect(stdout).toBe('gateway end\n');
  });

  it('gives the agent the tools of the service, which it cannot change', async () => {
    const toolsDir = join(options.stateDir, '.tools');
    mkdirSync(join(toolsDir, 'bin'), { recursive: true });
    writeFileSync(join(toolsDir, 'bin/some-tool'), '#!/bin/sh\necho tool\n', { mode: 0o755 });
    const equipped = newDriver({ ...options, toolsDir });
    const script = 'some-tool; echo x 2>/dev/null > /tools/bin/some-tool || echo refused';
    const launched = { sandboxId, ...bash(script) };
    await equipped.launch(launched);
    const { stdout } = await outcomeOf(equipped.follow({ ...launched, offset: 0 }));
    await rm(toolsDir, { recursive: true });
    expect(stdout).toBe('tool\nrefused\n');
  });

  it('goes on when the process that starts its programs is killed, and ends it with itself', async () => {
    const ours = () =>
      processesWith('launcher/main.js').filter((pid) =>
        readFileSync(`/proc/${pid}/status`, 'utf8').includes(`\nPPid:\t${process.pid}\n`),
      );
    const script = { sandboxId, script: 'echo in', as: 'agent', signal } as const;
    const own = newDriver(options);
    const others = new Set(ours());
    const its = () => ours().filter((pid) => !others.has(pid));
    expect(await own.runScript(script)).toEqual({ exitCode: 0, outputTail: 'in\n' });
    const [pid = 0] = its();
    process.kill(pid, 'SIGKILL');
    await untilNone(() => its().filter((each) => each === pid));
    expect(await own.runScript(script)).toEqual({ exitCode: 0, outputTail: 'in\n' });
    expect(its()).toHaveLength(1);
    await own.close();
    expect(its()).toEqual([]);
  });

  it('says why it cannot start a runtime, and that launch is lost', async () => {
    const launched = { sandboxId, ...bash('true', { cwd: '/workspace/no-such-folder' }) };
    await expect(driver.launch(launched)).rejects.toMatchObject({
      kind: 'failed',
      message: expect.stringContaining('no-such-folder') as unknown,
    });
    expect((await outcomeOf(driver.follow({ ...launched, offset: 0 }))).exit.reason).toBe('lost');
  });

  it('finishes a sandbox that was left half made, with the same kernel user', async () => {
    const half = randomUUID();
    const pool = join(options.stateDir, '.uids');
    const claimedBy = (id: string) =>
      readdirSync(pool).find((name) => readlinkSync(join(pool, name)) === id);
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    await driver.create({ sandboxId: half, writableRoot: false, network, signal });
    const isRoot = process.getuid?.() === 0;
    const user = isRoot ? claimedBy(half) : undefined;
    await rm(join(options.stateDir, half, 'sandbox.json'));
    await rm(join(options.stateDir, half, 'files/workspace'), { recursive: true });
    expect(await driver.exists({ sandboxId: half, signal })).toBe('no');
    expect(await driver.list({ signal })).toContain(half);
    await driver.create({ sandboxId: half, writableRoot: false, network, signal });
    expect(await driver.exists({ sandboxId: half, signal })).toBe('yes');
    if (isRoot) expect(claimedBy(half)).toBe(user);
    await driver.destroy({ sandboxId: half, signal });
  });

  it('gives each of many sandboxes that are made at once its own kernel user', async () => {
    if (process.getuid?.() !== 0) return;
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    const ids = Array.from({ length: 30 }, () => randomUUID());
    const second = newDriver(options);
    await Promise.all(
      ids.map((id, i) =>
        (i % 2 ? driver : second).create({ sandboxId: id, writableRoot: false, network, signal }),
      ),
    );
    const users = readdirSync(join(options.stateDir, '.uids')).filter((name) => /^\d+$/.test(name));
    expect(users).toHaveLength(31);
    await Promise.all(ids.map((id) => driver.destroy({ sandboxId: id, signal })));
  });

  it('finds a kernel user that a crash has left claimed for a sandbox beside its own', async () => {
    if (process.getuid?.() !== 0) return;
    const folder = join(options.stateDir, '.uids');
    const own = readdirSync(folder).find((name) => /^\d+$/.test(name));
    const stray = String(Number(own) === 2_000_000_000 ? 2_000_000_001 : 2_000_000_000);
    symlinkSync(sandboxId, join(folder, stray));
    await driver.destroy({ sandboxId, signal });
    expect(await driver.list({ signal })).toEqual([sandboxId]);
    await driver.destroy({ sandboxId, signal });
    expect(await driver.list({ signal })).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
  });
});
