import { createHash, randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type {
  LaunchOptions,
  NetworkPolicy,
  SandboxDriver,
  SpoolChunk,
  SpoolEvent,
  SpoolExit,
} from '../../src/sandboxes/driver/sandbox-driver.js';
import { describeFiles } from './sandbox-files.contract.js';
import { SandboxError } from '../../src/supervisor/sandbox-error.js';
import { commandOf, names as entries } from '../support/sandbox-processes.js';
import { eventually } from '../support/sessions.js';

/** One installation of a driver, as the contract sees it. */
export interface DriverUnderTest {
  driver: SandboxDriver;
  /** Are sandboxes kept from each other's files? Only a driver that says it does not isolate is not. */
  isolated: boolean;
  /** Another driver on the same state, as a restarted service would make it. */
  again(): Promise<SandboxDriver>;
  /** Removes what the installation leaves when all its sandboxes are destroyed. */
  dispose(): Promise<void>;
}

const OPEN: NetworkPolicy = { mode: 'unrestricted', allowedHosts: [] };
const signal = new AbortController().signal;

/** What a launch's output and end come to. */
export interface Outcome {
  stdout: string;
  stderr: string;
  chunks: SpoolChunk[];
  exit: SpoolExit;
}

/** Follows a launch from an offset to its end. */
export async function outcomeOf(events: AsyncIterable<SpoolEvent>): Promise<Outcome> {
  const chunks: SpoolChunk[] = [];
  let exit: SpoolExit | undefined;
  for await (const event of events) {
    expect(exit).toBeUndefined();
    if (event.kind === 'chunk') chunks.push(event);
    else exit = event;
  }
  if (exit === undefined) throw new Error('the launch was followed to no exit');
  const text = (stream: SpoolChunk['stream']): string =>
    Buffer.concat(chunks.filter((chunk) => chunk.stream === stream).map((c) => c.data)).toString();
  return { stdout: text('stdout'), stderr: text('stderr'), chunks, exit };
}

/** Makes drivers one after the other, as a service that restarts does: the one before is closed. */
export function oneAfterTheOther(make: () => SandboxDriver): () => Promise<SandboxDriver> {
  let before: SandboxDriver | undefined;
  return async () => {
    await before?.close();
    return (before = make());
  };
}

/** A folder that no path leads to: its name alone is longer than the kernel takes at once. */
const DEEP = 'cd ~; for i in $(seq 25); do d=$(printf "%0200d" $i); mkdir $d; cd $d; done';

/** What to launch: a bash script, unless told otherwise. */
export function bash(script: string, more: Partial<LaunchOptions> = {}) {
  return {
    launchId: randomUUID(),
    command: ['/bin/bash', '-c', script] as const,
    env: {},
    stdin: '',
    deadline: Date.now() + 60_000,
    outputLimit: 100 * 1024 * 1024,
    signal,
    ...more,
  };
}

/** The suite that every driver passes. */
export function describeSandboxDriver(name: string, make: () => Promise<DriverUnderTest>): void {
  describe(`sandbox driver: ${name}`, () => {
    let installation: DriverUnderTest;
    let driver: SandboxDriver;
    let sandboxId: string;

    beforeAll(async () => {
      installation = await make();
      ({ driver } = installation);
      sandboxId = await newSandbox();
    }, 300_000);

    // Each step is a hook of its own: what the installation has started must end whatever fails before.
    afterAll(async () => {
      for (const id of await driver.list({ signal }))
        await driver.destroy({ sandboxId: id, signal });
    }, 300_000);
    afterAll(() => driver.close());
    afterAll(() => installation.dispose(), 300_000);

    async function newSandbox(): Promise<string> {
      const id = randomUUID();
      await driver.create({ sandboxId: id, writableRoot: false, network: OPEN, signal });
      return id;
    }

    async function run(script: string, more: Partial<LaunchOptions> = {}): Promise<Outcome> {
      const launch = { sandboxId, ...bash(script, more) };
      await driver.launch(launch);
      return outcomeOf(driver.follow({ ...launch, offset: 0 }));
    }

    describe('sandboxes', () => {
      it('answers the preflight', async () => {
        await driver.preflight({ signal });
      });

      it('exist from create to destroy, and are listed', async () => {
        const id = randomUUID();
        expect(await driver.exists({ sandboxId: id, signal })).toBe('no');
        await driver.create({ sandboxId: id, writableRoot: false, network: OPEN, signal });
        expect(await driver.exists({ sandboxId: id, signal })).toBe('yes');
        expect(await driver.list({ signal })).toContain(id);
        await driver.destroy({ sandboxId: id, signal });
        await driver.destroy({ sandboxId: id, signal });
        expect(await driver.exists({ sandboxId: id, signal })).toBe('no');
        expect(await driver.list({ signal })).not.toContain(id);
      });

      it('keep their files when created again', async () => {
        await driver.runScript({ sandboxId, script: 'echo kept > ~/kept', as: 'agent', signal });
        await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
        expect((await run('cat ~/kept')).stdout).toBe('kept\n');
      });

      it('are gone for every operation once destroyed', async () => {
        const id = await newSandbox();
        await driver.destroy({ sandboxId: id, signal });
        const { home } = driver.layout(id);
        const gone = { name: 'SandboxError', kind: 'gone' };
        const files = [{ path: `${home}/x`, content: '' }];
        await expect(driver.launch({ sandboxId: id, ...bash('true') })).rejects.toMatchObject(gone);
        await expect(driver.writeFiles({ sandboxId: id, files, signal })).rejects.toMatchObject(
          gone,
        );
        await expect(
          driver.runScript({ sandboxId: id, script: 'true', as: 'agent', signal }),
        ).rejects.toMatchObject(gone);
        await expect(
          driver.restrictNetwork({ sandboxId: id, network: OPEN, signal }),
        ).rejects.toMatchObject(gone);
      });

      it('take no id that is a path', async () => {
        const options = { sandboxId: '../../etc', signal };
        await expect(driver.exists(options)).rejects.toBeInstanceOf(SandboxError);
        await expect(driver.destroy(options)).rejects.toBeInstanceOf(SandboxError);
      });

      it('can be destroyed while they run and whatever the agent did to its files', async () => {
        const id = await newSandbox();
        const script = `mkdir -p ~/locked/deep workspace/a; touch ~/locked/deep/file; chmod 000 ~/locked/deep ~/locked
          ln -s / ~/root-link; mkfifo ~/fifo; echo ready; sleep 600`;
        const launch = { sandboxId: id, ...bash(script) };
        await driver.launch(launch);
        for await (const event of driver.follow({ ...launch, offset: 0 })) {
          if (event.kind === 'chunk') break;
        }
        await driver.destroy({ sandboxId: id, signal });
        expect(await driver.list({ signal })).not.toContain(id);
      });

      it('do not share files', async () => {
        const other = await newSandbox();
        const { home, workspace } = driver.layout(other);
        await driver.runScript({
          sandboxId: other,
          script: `echo theirs > ~/private; echo theirs > ${workspace}/private; chmod 777 ~ ${workspace}`,
          as: 'agent',
          signal,
        });
        const script = `cat ${home}/private ${workspace}/private; echo x > ${workspace}/planted`;
        const { stdout, exit } = await run(script);
        await driver.destroy({ sandboxId: other, signal });
        const shared = driver.layout(other).home === driver.layout(sandboxId).home;
        // Where paths are the same everywhere, planting went into this sandbox's own workspace.
        expect({ stdout, exitCode: exit.exitCode }).toEqual(
          installation.isolated
            ? { stdout: '', exitCode: shared ? 0 : 1 }
            : { stdout: 'theirs\ntheirs\n', exitCode: 0 },
        );
      });
    });

    describe('files', () => {
      it('are written whole, with their mode, as the agent', async () => {
        const { home, workspace } = driver.layout(sandboxId);
        const big = Buffer.alloc(3_000_001, 'x\0\n\xff', 'latin1');
        await driver.writeFiles({
          sandboxId,
          signal,
          files: [
            { path: `${home}/.config/tool/key`, content: 'sécret', mode: 0o600 },
            { path: `${home}/plain/run.sh`, content: '#!/bin/sh\n', mode: 0o755 },
            { path: `${workspace}/with blank 'quote'/bin`, content: big },
            { path: `${workspace}/empty`, content: '' },
          ],
        });
        const { stdout } = await run(`
          stat -c '%a %n' ~/.config ~/.config/tool ~/.config/tool/key ~/plain ~/plain/run.sh | sed "s|$HOME|~|"
          cat ~/.config/tool/key; echo
          sha256sum < "./with blank 'quote'/bin"; stat -c %s empty
          test -O ~/.config/tool/key && echo own; ls -A ~/plain`);
        expect(stdout.split('\n')).toEqual([
          '700 ~/.config',
          '700 ~/.config/tool',
          '600 ~/.config/tool/key',
          '755 ~/plain',
          '755 ~/plain/run.sh',
          'sécret',
          `${createHash('sha256').update(big).digest('hex')}  -`,
          '0',
          'own',
          'run.sh',
          '',
        ]);
      });

      it('replace a link instead of following it', async () => {
        const { home } = driver.layout(sandboxId);
        await run('echo untouched > ~/target; ln -sf ~/target ~/link');
        await driver.writeFiles({
          sandboxId,
          signal,
          files: [{ path: `${home}/link`, content: 'new' }],
        });
        expect((await run('cat ~/target; test -L ~/link || cat ~/link')).stdout).toBe(
          'untouched\nnew',
        );
      });

      it('are refused outside of the home and the workspace', async () => {
        const { home } = driver.layout(sandboxId);
        for (const path of ['/etc/passwd', `${home}/../x`, 'relative', `${home}/`, home]) {
          await expect(
            driver.writeFiles({ sandboxId, signal, files: [{ path, content: '' }] }),
          ).rejects.toMatchObject({ kind: 'failed' });
        }
      });
    });

    describeFiles(() => ({ driver, sandboxId, run }));

    describe('scripts', () => {
      const script = (
        text: string,
        more: { env?: Record<string, string>; signal?: AbortSignal } = {},
      ) => driver.runScript({ sandboxId, script: text, as: 'agent', signal, ...more });

      it('give their exit code and the end of their output', async () => {
        expect(await script('echo out; echo err >&2; exit 7')).toMatchObject({ exitCode: 7 });
        const { exitCode, outputTail } = await script(
          'yes é | head -c 99999; echo end; kill -9 $$',
        );
        expect(exitCode).toBe(137);
        expect(outputTail).toMatch(/é\nend\n$/);
        expect(outputTail).not.toContain('\uFFFD');
        expect(Buffer.byteLength(outputTail)).toBeLessThanOrEqual(8192);
      });

      it('get their environment, and nothing to read', async () => {
        const { outputTail } = await script('cat; echo "$WORD $HOME"', {
          env: { WORD: 'a "b" $c' },
        });
        expect(outputTail).toBe(`a "b" $c ${driver.layout(sandboxId).home}\n`);
      });

      it('may set up as well', async () => {
        const result = await driver.runScript({
          sandboxId,
          script: 'echo x > ~/by-setup',
          as: 'setup',
          signal,
        });
        expect(result).toEqual({ exitCode: 0, outputTail: '' });
        expect((await run('echo y >> ~/by-setup; cat ~/by-setup')).stdout).toBe('x\ny\n');
      });

      it('are ended by abort, with everything they started', async () => {
        const controller = new AbortController();
        const ended = expect(
          script(
            '(trap "" TERM; setsid sleep 601; touch ~/survived) & touch ~/aborted; sleep 601',
            { signal: controller.signal },
          ),
        ).rejects.toMatchObject({ kind: 'aborted' });
        const begun = async () => (await run('ls ~/aborted 2>/dev/null; true')).stdout !== '';
        while (!(await begun())) await delay(50);
        controller.abort();
        await ended;
        expect((await run('ls ~/aborted; ps -eo args | grep "[s]leep 601"')).stdout).toMatch(
          /aborted\n$/,
        );
      });
    });

    describe('launches', () => {
      it('get command, environment, input and directory', async () => {
        const { stdout, stderr, exit } = await run(
          'echo "$A|$PWD|$USER"; cat; echo to-err >&2; exit 3',
          { env: { A: 'line\nbreak' }, stdin: 'in\u0000put', cwd: driver.layout(sandboxId).home },
        );
        expect(stdout).toBe(`line\nbreak|${driver.layout(sandboxId).home}|agent\nin\u0000put`);
        expect(stderr).toBe('to-err\n');
        expect(exit).toEqual({ kind: 'exit', reason: 'exited', exitCode: 3 });
      });

      it('inherit nothing of the service', async () => {
        const { stdout } = await run(
          'env | cut -d= -f1 | sort | tr "\\n" " "; ls /proc/self/fd | wc -l',
        );
        const [names = '', descriptors] = stdout.split(/ (?=\d)/);
        const known = [
          'HOME',
          'NODE_EXTRA_CA_CERTS',
          'LANG',
          'PATH',
          'PWD',
          'SHLVL',
          'TERM',
          'TMPDIR',
          'USER',
          '_',
        ];
        expect(known).toEqual(expect.arrayContaining(names.trim().split(' ')));
        // 0, 1, 2 and the folder that ls itself reads.
        expect(descriptors).toBe('4\n');
      });

      it('say the number of the signal that ended them', async () => {
        expect((await run('kill -SEGV $$')).exit).toMatchObject({
          reason: 'exited',
          exitCode: 139,
        });
        expect((await run('', { command: ['/no/such/program'] })).exit).toMatchObject({
          exitCode: 127,
        });
      });

      it('give bytes as they are', async () => {
        const { chunks } = await run(`printf 'a\\xff\\x00\\xc3'; sleep 0.1; printf '\\xa9'`);
        expect(Buffer.concat(chunks.map(({ data }) => data))).toEqual(
          Buffer.from([0x61, 0xff, 0, 0xc3, 0xa9]),
        );
      });

      it('can reopen their own descriptors', async () => {
        const { stdout, stderr } = await run(
          'echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin',
          {
            stdin: 'in',
          },
        );
        expect([stdout, stderr]).toEqual(['out\nin', 'err\n']);
      });

      it('start at most once', async () => {
        const launch = { sandboxId, ...bash('echo ran >> ~/runs; sleep 0.3; wc -l < ~/runs') };
        await Promise.all(Array.from({ length: 4 }, () => driver.launch(launch)));
        const { stdout } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
        await driver.launch(launch);
        await (await installation.again()).launch(launch);
        expect(stdout).toBe('1\n');
        expect((await run('cat ~/runs')).stdout).toBe('ran\n');
      });

      it('leave files and no processes to the next', async () => {
        await run(
          'echo left > ~/left; echo here > left; (trap "" TERM HUP; exec sleep 602) & disown',
        );
        const { stdout } = await run('cat ~/left left; ps -eo args | grep -c "[s]leep 602"');
        expect(stdout).toBe('left\nhere\n0\n');
      });

      it('end when the command does, whoever else holds the output', async () => {
        const { stdout, exit } = await run('echo before; (setsid sleep 603 &) ; exit 4');
        expect(stdout).toBe('before\n');
        expect(exit).toMatchObject({ reason: 'exited', exitCode: 4 });
      });

      it('end at their deadline', async () => {
        const { stdout, exit } = await run('echo on; trap "" TERM; while :; do sleep 1; done', {
          deadline: Date.now() + 700,
        });
        // On a slow machine it may end before it prints.
        expect(['', 'on\n']).toContain(stdout);
        expect(exit).toEqual({ kind: 'exit', reason: 'deadline', exitCode: null });
      });

      it('end at their output limit, and give all up to it', async () => {
        const { chunks, exit } = await run('yes', { outputLimit: 1_000_000 });
        expect(exit).toEqual({ kind: 'exit', reason: 'output_limit', exitCode: null });
        expect(chunks.reduce((sum, { data }) => sum + data.length, 0)).toBe(1_000_000);
      });
    });

    describe('the file system', () => {
      /** In an isolation that cannot give a sandbox a /tmp of its own, TMPDIR names what it has instead. */
      const TMP = 'TMP=${TMPDIR:-/tmp} VARTMP=${TMPDIR:-/var/tmp}';

      it('persists in /tmp and /var/tmp from the setup on, and begins empty in /dev/shm and /run', async () => {
        const setup = `${TMP}; echo setup > $TMP/by-setup; echo setup > $VARTMP/by-setup-too; stat -L -c %a $TMP $VARTMP`;
        expect(
          await driver.runScript({ sandboxId, script: setup, as: 'setup', signal }),
        ).toMatchObject({ exitCode: 0, outputTail: '1777\n1777\n' });
        const first = await run(`${TMP}; cat $TMP/by-setup $VARTMP/by-setup-too
          echo turn > $TMP/by-turn; echo turn > $VARTMP/by-turn-too
          echo x > /dev/shm/gone-${sandboxId}; echo x 2>/dev/null > /run/gone-${sandboxId}`);
        expect(first.stdout).toBe('setup\nsetup\n');
        const second = await run(`${TMP}; cat $TMP/by-turn $VARTMP/by-turn-too
          test "$TMPDIR" || ls /dev/shm /run | grep gone; rm /dev/shm/gone-${sandboxId} 2>/dev/null`);
        expect(second.stdout).toBe('turn\nturn\n');
        const other = await newSandbox();
        const seen = await run(`${TMP}; ls -A $TMP $VARTMP | grep by-`, { sandboxId: other });
        await driver.destroy({ sandboxId: other, signal });
        expect(seen.stdout).toBe('');
      });

      it.each([
        ['home', 'cd ~'],
        ['workspace', 'true'],
        ['/tmp', `${TMP}; cd $TMP`],
        ['/var/tmp', `${TMP}; cd $VARTMP`],
        ['a path that is too long for the kernel', DEEP],
        [
          'a folder that cannot be searched',
          'mkdir ~/dark; cd ~/dark; { sleep 0.2; chmod 400 .; } & true',
        ],
        ['a name that is not text', `mkdir ~/$'\\xff\\xfe'; cd ~/$'\\xff\\xfe'`],
        ['a file without a name', 'exec 9<>~/unnamed; rm ~/unnamed; cat() { command cat >&9; }'],
      ])('is limited, and says so: %s', async (_where, enter) => {
        const id = await newSandbox();
        const script = `${enter} && head -c 400M /dev/zero | cat > filled; sleep 50; echo went on`;
        const { stdout, exit } = await run(script, { sandboxId: id });
        await driver.destroy({ sandboxId: id, signal });
        expect(stdout).toBe('');
        expect(exit).toEqual({ kind: 'exit', reason: 'disk_limit', exitCode: null });
      });
    });

    describe('following', () => {
      it('gives 20 MB of output unchanged, in chunks of at most 64 KiB', async () => {
        const { chunks, exit } = await run('seq 1 2600000');
        const hash = createHash('sha256');
        for (let i = 1; i <= 2_600_000; i += 1000) {
          hash.update(Array.from({ length: 1000 }, (_, j) => `${i + j}\n`).join(''));
        }
        const seen = createHash('sha256');
        for (const { data } of chunks) seen.update(data);
        expect(seen.digest('hex')).toBe(hash.digest('hex'));
        expect(Math.max(...chunks.map(({ data }) => data.length))).toBeLessThanOrEqual(65536);
        expect(exit).toMatchObject({ exitCode: 0 });
      });

      it('goes on at any offset', async () => {
        const launch = { sandboxId, ...bash('for i in 1 2 3 4 5; do echo $i; sleep 0.02; done') };
        await driver.launch(launch);
        const { chunks, stdout } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
        expect(stdout).toBe('1\n2\n3\n4\n5\n');
        for (const [i, chunk] of chunks.entries()) {
          expect(chunk.offset).toBe(i === 0 ? 0 : chunks[i - 1]?.nextOffset);
          const rest = await outcomeOf(driver.follow({ ...launch, offset: chunk.offset }));
          expect(rest.chunks).toEqual(chunks.slice(i));
        }
        const end = chunks.at(-1)?.nextOffset ?? 0;
        expect((await outcomeOf(driver.follow({ ...launch, offset: end }))).chunks).toEqual([]);
        // Told only by drivers that can.
        for (const { offset } of driver.backlog ? chunks : []) {
          expect(await driver.backlog?.({ ...launch, offset })).toBe(end - offset);
        }
      });

      it('loses and repeats nothing when the follower changes in mid-output', async () => {
        const launch = {
          sandboxId,
          ...bash('for i in $(seq 3000); do echo $i; done; echo end >&2'),
        };
        await driver.launch(launch);
        let offset = 0;
        let text = '';
        let exit: SpoolExit | undefined;
        while (exit === undefined) {
          const follower = await installation.again();
          let left = 3;
          for await (const event of follower.follow({ ...launch, offset })) {
            if (event.kind === 'exit') exit = event;
            else {
              offset = event.nextOffset;
              if (event.stream === 'stdout') text += event.data.toString();
            }
            if ((left -= 1) === 0) break;
          }
        }
        expect(text).toBe(Array.from({ length: 3000 }, (_, i) => `${i + 1}\n`).join(''));
        expect(exit).toMatchObject({ reason: 'exited', exitCode: 0 });
      });

      it('gives output while the launch runs', async () => {
        const launch = {
          sandboxId,
          ...bash(
            'echo early; cat ~/go-on 2>/dev/null; while ! test -e ~/go-on; do sleep 0.02; done',
          ),
        };
        await driver.launch(launch);
        const events = driver.follow({ ...launch, offset: 0 });
        const first = (await events[Symbol.asyncIterator]().next()).value as SpoolChunk;
        expect(`${first.stream}: ${String(first.data)}`).toBe('stdout: early\n');
        await driver.runScript({ sandboxId, script: 'touch ~/go-on', as: 'agent', signal });
        const rest = await outcomeOf(events);
        expect(rest).toMatchObject({ stdout: '', stderr: '', exit: { exitCode: 0 } });
      });

      it('of what never was launched ends as lost, and nothing launches it afterwards', async () => {
        const launch = { sandboxId, ...bash('touch ~/started-after-all') };
        const lost = { kind: 'exit', reason: 'lost', exitCode: null };
        expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).exit).toEqual(lost);
        const nowhere = { ...launch, sandboxId: randomUUID() };
        expect((await outcomeOf(driver.follow({ ...nowhere, offset: 0 }))).exit).toEqual(lost);
      });

      it('stops at the signal, and leaves the launch alone', async () => {
        const launch = { sandboxId, ...bash('sleep 0.6; echo done') };
        await driver.launch(launch);
        const controller = new AbortController();
        setTimeout(() => controller.abort(), 50);
        await expect(
          outcomeOf(driver.follow({ ...launch, offset: 0, signal: controller.signal })),
        ).rejects.toMatchObject({ kind: 'aborted' });
        expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout).toBe('done\n');
      });
    });

    describe('killing', () => {
      it('ends what ignores TERM and what has detached itself', async () => {
        const launch = {
          sandboxId,
          ...bash(
            `trap '' TERM; setsid bash -c 'trap "" TERM; echo d; sleep 604 & wait; sleep 604' & sleep 604; sleep 604`,
          ),
        };
        await driver.launch(launch);
        for await (const event of driver.follow({ ...launch, offset: 0 })) {
          if (event.kind === 'chunk') break;
        }
        await driver.kill(launch);
        const { exit } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
        expect(exit).toEqual({ kind: 'exit', reason: 'killed', exitCode: null });
        expect((await run('ps -eo args | grep -c "[s]leep 604"')).stdout).toBe('0\n');
        await driver.kill(launch);
      });

      it('lets a runtime end by itself first', async () => {
        const launch = {
          sandboxId,
          ...bash('trap "echo bye; exit 0" TERM; echo hi; sleep 605 & wait'),
        };
        await driver.launch(launch);
        // When it prints, its trap is set.
        for await (const event of driver.follow({ ...launch, offset: 0 })) {
          if (event.kind === 'chunk') break;
        }
        await driver.kill(launch);
        expect(await outcomeOf(driver.follow({ ...launch, offset: 0 }))).toMatchObject({
          stdout: 'hi\nbye\n',
          exit: { reason: 'killed' },
        });
      });

      it('leaves nothing of a launch that is killed while it starts', async () => {
        const mark = randomUUID();
        for (let round = 0; round < 15; round += 1) {
          const launch = { sandboxId, ...bash(`: ${mark}; sleep 607`) };
          const launching = driver.launch(launch).catch(() => undefined);
          await delay(round * 10);
          await driver.kill(launch);
          await launching;
          // The first one may have come before there was anything to kill.
          await driver.kill(launch);
        }
        // The mark is also in the arguments of whatever was to start the command.
        await eventually(
          async () => entries('/proc').every((pid) => !commandOf(pid).includes(mark)),
          'nothing to be left of the launches',
        );
      });

      it('works after a restart, and does nothing to what has ended', async () => {
        const launch = { sandboxId, ...bash('sleep 606') };
        await driver.launch(launch);
        await (await installation.again()).kill(launch);
        const ended = { sandboxId, ...bash('exit 5') };
        await driver.launch(ended);
        await outcomeOf(driver.follow({ ...ended, offset: 0 }));
        await driver.kill(ended);
        expect((await outcomeOf(driver.follow({ ...ended, offset: 0 }))).exit.exitCode).toBe(5);
        expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).exit.reason).toBe(
          'killed',
        );
        await driver.kill({ sandboxId, launchId: randomUUID(), signal });
      });
    });

    it('discards the spool of a launch, which stays launched', async () => {
      const launch = { sandboxId, ...bash('echo once >> ~/once') };
      await driver.launch(launch);
      await outcomeOf(driver.follow({ ...launch, offset: 0 }));
      await driver.discardSpool(launch);
      await driver.discardSpool(launch);
      await driver.launch(launch);
      expect(await outcomeOf(driver.follow({ ...launch, offset: 0 }))).toMatchObject({
        chunks: [],
        exit: { exitCode: 0 },
      });
      expect((await run('cat ~/once')).stdout).toBe('once\n');
    });

    it('refuses an aborted signal', async () => {
      const aborted = { kind: 'aborted' };
      const launch = { sandboxId, ...bash('true'), signal: AbortSignal.abort() };
      await expect(driver.launch(launch)).rejects.toMatchObject(aborted);
      const id = randomUUID();
      await expect(
        driver.create({
          sandboxId: id,
          writableRoot: false,
          network: OPEN,
          signal: AbortSignal.abort(),
        }),
      ).rejects.toMatchObject(aborted);
    });
  });
}
