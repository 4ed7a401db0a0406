import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import type { FileEntry } from '../supervisor/files/file-access.js';
import { KeptLists, PagedList } from './paged-list.js';

const entry = (index: number): FileEntry => ({
  type: 'file',
  name: `f${index}`,
  size: 0,
  mode: 0o644,
  modifiedAt: new Date(0),
  version: '1',
});

/** A folder, and how far it was read. */
class Folder {
  read = 0;
  closed = false;
  readonly list: PagedList;

  constructor(size: number) {
    const open = this.open.bind(this, size);
    this.list = new PagedList('sandbox', (name) => `folder/${name}`, open);
  }

  private async *open(size: number): AsyncGenerator<FileEntry, void, undefined> {
    try {
      for (let index = 0; index < size; index += 1) {
        this.read += 1;
        yield entry(index);
      }
    } finally {
      this.closed = true;
    }
  }
}

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

describe('a list in pages', () => {
  it('reads its folder once, and no further than one entry beyond the page', async () => {
    const folder = new Folder(5);
    const first = await folder.list.page(2);
    expect([first.entries.map(({ path }) => path), first.hasMore, folder.read]).toEqual([
      ['folder/f0', 'folder/f1'],
      true,
      3,
    ]);
    const second = await folder.list.page(2);
    expect([second.entries.map(({ path }) => path), second.hasMore]).toEqual([
      ['folder/f2', 'folder/f3'],
      true,
    ]);
    const third = await folder.list.page(2);
    expect([third.entries.map(({ path }) => path), third.hasMore]).toEqual([['folder/f4'], false]);
    expect([folder.read, folder.closed]).toEqual([5, true]);
  });

  it('has no more when the page ends with the folder', async () => {
    expect(await new Folder(2).list.page(2)).toMatchObject({ hasMore: false });
    expect(await new Folder(0).list.page(2)).toEqual({ entries: [], hasMore: false });
  });
});

describe('lists between two pages', () => {
  it('are continued once, by the request for the next page', async () => {
    const kept = new KeptLists();
    const { list } = new Folder(3);
    kept.keep('f1', 'user', list);
    expect(kept.take('f2')).toBeUndefined();
    expect(kept.take('f1')).toBe(list);
    expect(kept.take('f1')).toBeUndefined();
  });

  it('are closed when they are not continued soon', async () => {
    const kept = new KeptLists();
    const folder = new Folder(3);
    await folder.list.page(1);
    kept.keep('key', 'user', folder.list);
    await jest.advanceTimersByTimeAsync(9_900);
    expect(folder.closed).toBe(false);
    await jest.advanceTimersByTimeAsync(200);
    expect([folder.closed, kept.take('key')]).toEqual([true, undefined]);
  });

  it('of one user are two, the newest ones, and of all users 32', async () => {
    const kept = new KeptLists();
    const begin = async (key: string, user: string): Promise<Folder> => {
      const folder = new Folder(3);
      await folder.list.page(1);
      kept.keep(key, user, folder.list);
      await jest.advanceTimersByTimeAsync(1);
      return folder;
    };
    const own = [await begin('a', 'user'), await begin('b', 'user'), await begin('c', 'user')];
    expect(own.map(({ closed }) => closed)).toEqual([true, false, false]);
    for (let index = 0; index < 31; index += 1) await begin(`other ${index}`, `user ${index}`);
    expect(own.map(({ closed }) => closed)).toEqual([true, true, false]);
    kept.closeAll();
    await jest.advanceTimersByTimeAsync(1);
    expect(own.map(({ closed }) => closed)).toEqual([true, true, true]);
  });
});
