import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from '@jest/globals';
import type { SandboxDriver } from '../../src/sandboxes/driver/sandbox-driver.js';
import { FileAccess, type FileEntry } from '../../src/supervisor/files/file-access.js';

const { signal } = new AbortController();

/** A driver with a sandbox, and how to run a script in it. */
interface SandboxUnderTest {
  driver: SandboxDriver;
  sandboxId: string;
  run(script: string): Promise<{ stdout: string; stderr: string }>;
}

const digest = (data: Buffer): string => createHash('sha256').update(data).digest('hex');

async function* pieces(...data: (Buffer | string)[]): AsyncGenerator<Buffer, void, undefined> {
  for (const piece of data) yield Buffer.from(piece as string);
}

async function all(parts: AsyncIterable<Buffer>): Promise<Buffer> {
  const found: Buffer[] = [];
  for await (const part of parts) found.push(Buffer.from(part));
  return Buffer.concat(found);
}

/** How every driver gives access to the files of its sandboxes. */
export function describeFiles(make: () => SandboxUnderTest): void {
  describe('file access', () => {
    let files: FileAccess;
    let run: SandboxUnderTest['run'];
    let home: string;
    let workspace: string;
    let folder: string;

    beforeAll(async () => {
      const { driver, sandboxId, run: runScript } = make();
      files = new FileAccess((call) => driver.files({ sandboxId, ...call }));
      ({ home, workspace } = driver.layout(sandboxId));
      run = runScript;
      folder = `${workspace}/files-${randomUUID().slice(0, 8)}`;
      await run(`mkdir '${folder}'`);
    });

    const list = async (path: string, more: { after?: string; limit?: number } = {}) => {
      const entries: FileEntry[] = [];
      const options = { path, after: '', limit: 1000, signal, ...more };
      for await (const entry of files.entries(options)) entries.push(entry);
      return entries;
    };
    const read = async (path: string, offset = 0, length?: number): Promise<Buffer> => {
      const file = await files.open({ path, signal });
      const data = await all(file.read(offset, length ?? file.entry.size - offset));
      await file.close();
      return data;
    };
    const write = (path: string, content: AsyncIterable<Buffer> | string, mode?: number) =>
      files.write({
        path,
        mode: mode ?? null,
        content: typeof content === 'string' ? pieces(content) : content,
        signal,
      });
    const brief = ({ type, name, size, mode }: FileEntry) =>
      `${type} ${name} ${size} ${(mode & 0o777).toString(8)}`;

    it('lists a folder in the order of its names, in pages', async () => {
      await run(`mkdir '${folder}/list' && cd '${folder}/list' && mkdir sub && chmod 750 sub &&
        printf 123 > b && chmod 640 b && ln -s /etc/passwd link && mkfifo fifo && chmod 600 fifo &&
        touch -d '2020-01-02T03:04:05.006Z' é`);
      const entries = await list(`${folder}/list`);
      expect(entries.map(brief)).toEqual([
        'file b 3 640',
        'other fifo 0 600',
        'symlink link 0 777',
        'directory sub 0 750',
        expect.stringMatching(/^file é 0 6/),
      ]);
      expect(entries[2]?.target).toBe('/etc/passwd');
      expect(entries[4]?.modifiedAt).toEqual(new Date('2020-01-02T03:04:05.006Z'));
      const names: string[] = [];
      for (;;) {
        const page = await list(`${folder}/list`, { after: names.at(-1) ?? '', limit: 2 });
        names.push(...page.map(({ name }) => name));
        if (page.length < 2) break;
      }
      expect(names).toEqual(['b', 'fifo', 'link', 'sub', 'é']);
      expect((await list(`${folder}/list/b`)).map(brief)).toEqual(['file  3 640']);
    });

    it('shows names that are not UTF-8 with a replacement character, one of those that look the same', async () => {
      await run(
        `mkdir '${folder}/bytes' && cd '${folder}/bytes' && touch $'a\\xffb' $'a\\xfeb' $'new\\nline"\\\\'`,
      );
      const names = (await list(`${folder}/bytes`)).map(({ name }) => name);
      expect(names).toEqual(['a\uFFFDb', 'new\nline"\\']);
      await expect(read(`${folder}/bytes/a\uFFFDb`)).rejects.toMatchObject({ kind: 'missing' });
    });

    it('reads a file, or a part of it', async () => {
      const content = randomBytes(3_000_001);
      await write(`${folder}/large`, pieces(content));
      expect(digest(await read(`${folder}/large`))).toBe(digest(content));
      expect(digest(await read(`${folder}/large`, 2_000_000, 500_000))).toBe(
        digest(content.subarray(2_000_000, 2_500_000)),
      );
      const { version } = (await files.open({ path: `${folder}/large`, signal })).entry;
      await run(`touch -d '2001-01-01' '${folder}/large'`);
      const touched = await files.open({ path: `${folder}/large`, signal });
      await touched.close();
      expect(touched.entry.version).not.toBe(version);
    });

    it('writes a file whole, as the agent, with its parent folders', async () => {
      await write(`${home}/files/deep/script`, pieces('#!/bin/sh\n', '', 'echo ran'), 0o755);
      const { stdout } = await run(
        `~/files/deep/script; test -O ~/files/deep/script && stat -c ' %a' ~/files ~/files/deep/script`,
      );
      expect(stdout).toBe('ran\n 755\n 755\n');
      await write(`${home}/files/deep/script`, 'again');
      const again = await run('stat -c %a ~/files/deep/script; cat ~/files/deep/script');
      expect(again.stdout).toBe('755\nagain');
    });

    it('leaves nothing of a file whose content ends early', async () => {
      await write(`${folder}/early/file`, 'before');
      const failing = async function* (): AsyncGenerator<Buffer, void, undefined> {
        yield Buffer.alloc(300_000);
        throw new Error('the client is gone');
      };
      await expect(write(`${folder}/early/file`, failing())).rejects.toThrow();
      const stop = new AbortController();
      const stopping = async function* (): AsyncGenerator<Buffer, void, undefined> {
        yield Buffer.alloc(300_000);
        stop.abort();
        await new Promise(() => undefined);
      };
      const path = `${folder}/early/file`;
      await expect(
        files.write({ path, mode: null, content: stopping(), signal: stop.signal }),
      ).rejects.toMatchObject({ kind: 'aborted' });
      const left = async () => (await run(`ls -A '${folder}/early'; cat '${path}'`)).stdout;
      for (let i = 0; i < 50 && (await left()) !== 'file\nbefore'; i += 1);
      expect(await left()).toBe('file\nbefore');
    });

    it('removes a file, a link and a folder with everything in it', async () => {
      await run(`cd '${folder}' && mkdir -p rm/a/b && touch rm/a/b/c keep && ln -s ../keep rm/link &&
        chmod 500 rm/a/b && chmod 000 rm/a && cd rm && mkdir deep && cd deep &&
        for i in $(seq 200); do mkdir d && cd d || exit; done; touch file`);
      await files.remove({ path: `${folder}/rm/link`, signal });
      expect((await run(`ls '${folder}/keep' '${folder}/rm'`)).stdout).toContain('keep');
      await files.remove({ path: `${folder}/rm`, signal });
      expect((await run(`ls '${folder}'`)).stdout).not.toMatch(/^rm$/m);
      await expect(files.remove({ path: `${folder}/rm`, signal })).rejects.toMatchObject({
        kind: 'missing',
      });
      for (const path of [home, workspace, `${folder}/..`]) {
        await expect(files.remove({ path, signal })).rejects.toMatchObject({ kind: 'conflict' });
      }
    });

    it('sends a tree with the content of its files', async () => {
      await run(`mkdir -p '${folder}/tree/sub/empty' && cd '${folder}/tree' && printf one > 1 &&
        head -c 200000 /dev/zero > sub/zeros && ln -s sub link && mkfifo fifo &&
        touch secret && chmod 000 secret`);
      const found = new Map<string, number>();
      let last = '';
      for await (const part of files.tree({ path: `${folder}/tree`, signal })) {
        if (Buffer.isBuffer(part)) found.set(last, (found.get(last) ?? 0) + part.length);
        else {
          last = `${part.type} ${part.name}`;
          found.set(last, 0);
        }
      }
      expect(Object.fromEntries(found)).toEqual({
        'directory sub': 0,
        'directory sub/empty': 0,
        'file 1': 3,
        'file sub/zeros': 200_000,
        'symlink link': 0,
      });
    });

    it('follows links in home and workspace, and none out of them', async () => {
      await run(`cd '${folder}' && mkdir links && cd links && echo inside > ~/inside-link &&
        ln -s '${home}/inside-link' absolute && ln -s ../links relative && ln -s /etc out &&
        ln -s /proc/self/root/etc/passwd magic && ln -s "${'../'.repeat(30)}etc/passwd" up &&
        ln -s loop loop && ln -s /etc/passwd passwd && ln -s nothing dangling`);
      const links = `${folder}/links`;
      expect(String(await read(`${links}/absolute`))).toBe('inside\n');
      expect(String(await read(`${links}/relative/relative/absolute`))).toBe('inside\n');
      const missing = { kind: 'missing' };
      for (const name of ['out/passwd', 'magic', 'up', 'loop', 'passwd', 'dangling', 'none/x']) {
        await expect(read(`${links}/${name}`)).rejects.toMatchObject(missing);
      }
      for (const path of ['/etc/passwd', `${workspace}/../etc/passwd`, `${workspace}x`, '/', '']) {
        await expect(read(path)).rejects.toMatchObject(missing);
        await expect(list(path)).rejects.toMatchObject(missing);
        await expect(write(path, 'x')).rejects.toMatchObject(missing);
      }
      await expect(list(`${links}/out`)).rejects.toMatchObject(missing);
      await expect(write(`${links}/out/x`, 'x')).rejects.toMatchObject(missing);
      await expect(files.remove({ path: `${links}/out/x`, signal })).rejects.toMatchObject(missing);
      // A link itself is replaced.
      await write(`${links}/passwd`, 'own');
      expect(String(await read(`${links}/passwd`))).toBe('own');
    });

    it('does not wait for pipes, and opens only files', async () => {
      await run(`cd '${folder}' && mkdir odd && mkfifo odd/fifo && mkdir odd/folder`);
      for (const name of ['fifo', 'folder']) {
        const file = await files.open({ path: `${folder}/odd/${name}`, signal });
        expect(file.entry.type).toBe(name === 'fifo' ? 'other' : 'directory');
        await file.close();
      }
      await expect(write(`${folder}/odd/folder`, 'x')).rejects.toMatchObject({ kind: 'conflict' });
      await expect(write(`${folder}/odd/fifo/x`, 'x')).rejects.toMatchObject({ kind: 'missing' });
    });

    it('takes no more than the disk of the sandbox has', async () => {
      const piece = Buffer.alloc(1024 * 1024, 'x');
      const endless = async function* (): AsyncGenerator<Buffer, void, undefined> {
        for (let i = 0; i < 4096; i += 1) yield piece;
      };
      await expect(write(`${folder}/endless`, endless())).rejects.toMatchObject({ kind: 'full' });
      expect((await run(`ls -A '${folder}' | grep -c -e endless -e writing`)).stdout).toBe('0\n');
    });

    it('ends with its caller', async () => {
      await write(`${folder}/half`, pieces(Buffer.alloc(2_000_000)));
      const file = await files.open({ path: `${folder}/half`, signal });
      for await (const piece of file.read(0, file.entry.size)) {
        expect(piece.length).toBeGreaterThan(0);
        break;
      }
      await file.close();
      expect((await list(`${folder}/half`)).map(brief)).toEqual([
        expect.stringMatching(/^file {2}2000000/),
      ]);
    });
  });
}
