import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { publishOnce, type BuildContext } from '../../../src/common/publish-once.js';

const MODULE = join(process.cwd(), 'dist/src/common/publish-once.js');
const never = new AbortController().signal;

/** Another process that publishes `thing`, and says `building` and `done`; it builds until the file `go` is there. */
const PUBLISHER = `
import { publishOnce } from ${JSON.stringify(MODULE)};
import { appendFile, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
const [dir] = process.argv.slice(1);
await publishOnce({ dir, name: 'thing', signal: new AbortController().signal, build: async ({ draft }) => {
  await appendFile(dir + '/builds', process.pid + ' ');
  await writeFile(draft + '/half', '');
  console.log('building');
  while (!existsSync(dir + '/go')) await new Promise((resolve) => setTimeout(resolve, 10));
  await writeFile(draft + '/whole', '');
} });
console.log('done');
`;

describe('publishOnce', () => {
  let dir: string;
  const children: ChildProcess[] = [];

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'publish-'));
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    await rm(dir, { recursive: true });
  });

  function startPublisher(): { child: ChildProcess; said: (word: string) => Promise<void> } {
    const child = spawn(process.execPath, ['--input-type=module', '-e', PUBLISHER, dir], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    const said = async (word: string): Promise<void> => {
      while (!text.includes(word)) {
        if (child.exitCode !== null) throw new Error(`ended without saying ${word}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    };
    return { child, said };
  }

  it('builds once for all callers in this process, and then never again', async () => {
    const build = jest.fn(async ({ draft }: BuildContext) => writeFile(join(draft, 'whole'), ''));
    const options = { dir: join(dir, 'new/folder'), name: 'thing', signal: never, build };
    const path = join(dir, 'new/folder/thing');
    expect(await Promise.all([publishOnce(options), publishOnce(options)])).toEqual([path, path]);
    expect(await publishOnce(options)).toBe(path);
    expect(build).toHaveBeenCalledTimes(1);
    expect(await readdir(path)).toEqual(['whole']);
  });

  it('builds once for several processes', async () => {
    const first = startPublisher();
    await first.said('building');
    const second = startPublisher();
    const build = () => Promise.reject(new Error('a second build'));
    const own = publishOnce({ dir, name: 'thing', signal: never, build });
    await writeFile(join(dir, 'go'), '');
    await Promise.all([first.said('done'), second.said('done'), own]);
    expect((await readFile(join(dir, 'builds'), 'utf8')).trim()).toBe(String(first.child.pid));
  });

  it('takes over from a process that was killed, without what it left', async () => {
    const { child, said } = startPublisher();
    await said('building');
    const build = ({ draft }: BuildContext) => writeFile(join(draft, 'whole'), 'own');
    const own = publishOnce({ dir, name: 'thing', signal: never, build });
    child.kill('SIGKILL');
    expect(await readdir(await own)).toEqual(['whole']);
    expect((await readdir(dir)).filter((name) => name.includes('building'))).toEqual([]);
  });

  it('removes what an earlier crash left, of this and of other names', async () => {
    await mkdir(join(dir, 'thing.building/deep'), { recursive: true });
    await mkdir(join(dir, 'older.building'));
    await mkdir(join(dir, 'older'));
    const build = () => Promise.resolve();
    const path = await publishOnce({ dir, name: 'thing', signal: never, build });
    expect(await readdir(path)).toEqual([]);
    expect(new Set(await readdir(dir))).toEqual(new Set(['.lock', 'older', 'thing']));
  });

  it('leaves nothing of a build that fails, and tries again when asked again', async () => {
    const build = jest
      .fn<(context: BuildContext) => Promise<void>>()
      .mockRejectedValueOnce(new Error('no space left'))
      .mockResolvedValueOnce();
    const options = { dir, name: 'thing', signal: never, build };
    await expect(publishOnce(options)).rejects.toThrow('no space left');
    expect(await readdir(dir)).toEqual(['.lock']);
    await publishOnce(options);
    expect(existsSync(join(dir, 'thing'))).toBe(true);
  });

  it('abandons a build only when everyone who waited has given up', async () => {
    const [first, second] = [new AbortController(), new AbortController()];
    let abandoned = false;
    const building = Promise.withResolvers<undefined>();
    const build = ({ signal, onProgress }: BuildContext): Promise<void> =>
      new Promise((_, reject) => {
        onProgress('half way');
        building.resolve(undefined);
        signal.addEventListener('abort', () => {
          abandoned = true;
          reject(signal.reason as Error);
        });
      });
    const onProgress = jest.fn();
    const common = { dir, name: 'thing', build };
    const one = publishOnce({ ...common, signal: first.signal, onProgress });
    const two = publishOnce({ ...common, signal: second.signal });
    await building.promise;
    // First that there is something to wait for, which another process may be at.
    expect(onProgress.mock.calls).toEqual([['waiting for it to be made'], ['half way']]);
    first.abort(new Error('first gave up'));
    await expect(one).rejects.toThrow('first gave up');
    expect(abandoned).toBe(false);
    second.abort(new Error('second gave up'));
    await expect(two).rejects.toThrow('second gave up');
    expect(abandoned).toBe(true);
    // The next caller starts afresh, once the abandoned build is cleared away.
    await publishOnce({ ...common, signal: never, build: () => Promise.resolve() });
  });

  it('stops waiting for another process when told to', async () => {
    const { said } = startPublisher();
    await said('building');
    const controller = new AbortController();
    const build = () => Promise.resolve();
    const own = publishOnce({ dir, name: 'thing', signal: controller.signal, build });
    controller.abort(new Error('enough'));
    await expect(own).rejects.toThrow('enough');
  });
});
