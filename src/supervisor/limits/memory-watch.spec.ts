import { type ChildProcess, spawn } from 'node:child_process';
import { afterEach, describe, expect, it } from '@jest/globals';
import { Uncountable } from './look.js';
import { MemoryWatch, residentBytes } from './memory-watch.js';

const MiB = 2 ** 20;

describe('the watch over memory', () => {
  let child: ChildProcess | undefined;

  afterEach(async () => {
    if (child === undefined) return;
    const gone = new Promise((resolve) => child?.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
    child = undefined;
  });

  async function isOver(limitBytes: number, script: string): Promise<boolean> {
    const program = `import ctypes, mmap, os, sys, threading\n${script}\nprint(1, flush=True)\nsys.stdin.read()`;
    child = spawn('python3', ['-c', program], { stdio: ['pipe', 'pipe', 'inherit'] });
    await new Promise((resolve) => child?.stdout?.once('data', resolve));
    const pids = [child.pid ?? 0];
    return new MemoryWatch(
      limitBytes,
      () => pids,
      () => [],
      false,
    ).exceeded();
  }

  it('counts nothing if the kernel enforces the limit', async () => {
    const looks: string[] = [];
    const look = (what: string) => () => {
      looks.push(what);
      return [];
    };
    const watch = new MemoryWatch(0, look('processes'), look('folders'), true);
    expect(await watch.exceeded()).toBe(false);
    expect(looks).toEqual([]);
  });

  it.each([
    ['private memory', `x = b'x' * ${80 * MiB}`],
    ['shared memory', `x = mmap.mmap(-1, ${80 * MiB}); x.write(b'x' * ${80 * MiB})`],
    ['a memfd', `os.write(os.memfd_create('x'), b'x' * ${80 * MiB})`],
    [
      'memory of a process whose first thread has ended',
      `def rest():
  while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': pass
  x = b'x' * ${80 * MiB}; print(1, flush=True); sys.stdin.read()
threading.Thread(target=rest).start(); ctypes.CDLL(None).pthread_exit(None)`,
    ],
    [
      'page tables',
      // Of pages that are all the same page of zeros, which nobody is charged for.
      `reach = mmap.PAGESIZE ** 2 // 8; tables = ${80 * MiB} // mmap.PAGESIZE
x = mmap.mmap(-1, reach * tables, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
x.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(tables): x[i * reach]`,
    ],
  ])('counts %s', async (_what, script) => {
    expect(await isOver(64 * MiB, script)).toBe(true);
  });

  const MAPPINGS = 'm = [mmap.mmap(-1, 4096, prot=1 + i % 2 * 2) for i in range(50000)]';

  it('counts shared memory among tens of thousands of mappings', async () => {
    const script = `${MAPPINGS}; x = mmap.mmap(-1, ${80 * MiB}); x.write(b'x' * ${80 * MiB})`;
    expect(await isOver(64 * MiB, script)).toBe(true);
  });

  it('counts a memfd that is mapped as well once, among tens of thousands of mappings', async () => {
    const script = `${MAPPINGS}; f = os.memfd_create('x'); os.truncate(f, ${80 * MiB})
x = mmap.mmap(f, 0); x.write(b'x' * ${80 * MiB})`;
    expect(await isOver(150 * MiB, script)).toBe(false);
  });

  it('reports memory that is too much to count, and after a while memory that cannot be counted', async () => {
    const failing = (error: Error) =>
      new MemoryWatch(
        64 * MiB,
        () => {
          throw error;
        },
        () => [],
        false,
      );
    expect(await failing(new Uncountable('too many')).exceeded()).toBe(true);
    const unlucky = failing(new Error('EMFILE'));
    const looks: boolean[] = [];
    for (let i = 0; i < 8; i += 1) looks.push(await unlucky.exceeded());
    expect(looks).toEqual([false, false, false, false, false, false, false, true]);
  });

  it('does not report memory within the limit', async () => {
    expect(
      await isOver(64 * MiB, `x = mmap.mmap(-1, ${20 * MiB}); x.write(b'x' * ${20 * MiB})`),
    ).toBe(false);
  });

  it('counts swapped memory and page tables', () => {
    const status =
      'RssAnon:\t 1 kB\nRssFile:\t 9 kB\nRssShmem:\t 2 kB\nVmPTE:\t 4 kB\nVmSwap:\t 8 kB\n';
    expect(residentBytes(status)).toBe(15 * 1024);
  });
});
