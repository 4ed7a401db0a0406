import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { unlinkedFiles } from './disk-usage.js';
import { Look, Uncountable } from './look.js';

const MiB = 2 ** 20;

describe('files without a name', () => {
  let folder: string;
  let child: ChildProcess | undefined;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'unlinked-'));
  });

  afterEach(async () => {
    if (child !== undefined) {
      const gone = new Promise((resolve) => child?.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
      child = undefined;
    }
    rmSync(folder, { recursive: true });
  });

  const devices = () => new Set([statSync(folder).dev]);

  /** Starts a program and waits for its first output. */
  async function start(program: string, ...args: string[]) {
    child = spawn(program, args, { cwd: folder, stdio: ['pipe', 'pipe', 'inherit'] });
    await new Promise((resolve) => child?.stdout?.once('data', resolve));
    return { pid: child.pid ?? 0 };
  }

  async function heldBy(program: string, ...args: string[]) {
    return unlinkedFiles([(await start(program, ...args)).pid], devices());
  }

  const started = (script: string) =>
    start(
      'python3',
      '-c',
      `import mmap, os, socket, sys\n${script}\nprint(1, flush=True)\nsys.stdin.read()`,
    );

  const python = async (script: string) => unlinkedFiles([(await started(script)).pid], devices());

  it('that are open are counted', async () => {
    const held = await heldBy(
      'bash',
      '-c',
      'exec 9<>held; rm held; head -c 5M /dev/zero >&9; echo; read',
    );
    expect(held).toEqual({ bytes: 5 * MiB, unseen: false, hidden: false });
  });

  it('that are mapped and not open are counted', async () => {
    const { bytes } = await python(`f = open('held', 'w+b'); f.write(b'x' * ${5 * MiB}); f.flush()
m = mmap.mmap(f.fileno(), 0); f.close(); os.unlink('held')`);
    expect(bytes).toBe(5 * MiB);
  });

  it('that are on their way through a socket are noticed', async () => {
    const { unseen } = await python(`f = open('held', 'w+b'); f.write(b'x' * ${5 * MiB}); f.flush()
a, b = socket.socketpair(socket.AF_UNIX); socket.send_fds(a, [b'x'], [f.fileno()]); f.close(); os.unlink('held')`);
    expect(unseen).toBe(true);
  });

  it('of a process whose first thread has ended are counted', async () => {
    const held = await python(`import ctypes, threading
f = open('held', 'w+b'); f.write(b'x' * ${5 * MiB}); f.flush(); os.unlink('held')
def rest():
  while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': pass
  print(1, flush=True); sys.stdin.read()
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)`);
    expect(held.bytes).toBe(5 * MiB);
  });

  it('are found among tens of thousands of mappings, with other work being done meanwhile', async () => {
    const { pid } = await started(`f = open('held', 'w+b'); f.write(b'x' * ${5 * MiB}); f.flush()
m = [mmap.mmap(-1, 4096, prot=1 + i % 2 * 2) for i in range(50000)] + [mmap.mmap(f.fileno(), 0)]
f.close(); os.unlink('held')`);
    let turns = 0;
    const counting = setInterval(() => (turns += 1), 1);
    const { bytes } = await unlinkedFiles([pid], devices());
    clearInterval(counting);
    expect(bytes).toBe(5 * MiB);
    expect(turns).toBeGreaterThan(0);
  });

  it('are too many to be looked at', async () => {
    const { pid } = await started(`m = [os.dup(0) for i in range(100)]`);
    await expect(
      unlinkedFiles([pid], devices(), new Look({ steps: 99, cpuMs: Infinity })),
    ).rejects.toThrow(Uncountable);
  });

  it('elsewhere, and files with a name, are not', async () => {
    expect(
      await heldBy(
        'bash',
        '-c',
        'exec 9>named 8>/dev/shm/x$$; rm /dev/shm/x$$; echo y >&8; echo; read',
      ),
    ).toEqual({
      bytes: 0,
      unseen: false,
      hidden: false,
    });
  });
});
