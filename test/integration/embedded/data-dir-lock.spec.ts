import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { lockDataDir } from '../../../src/database/embedded/data-dir.js';
import { testWith } from '../../support/requirements.js';
import { ServiceProcess, withDataDir } from './service-process.js';

describe('the lock of a data folder', () => {
  test('refuses a second service and names the first', () =>
    withDataDir(async (dataDir) => {
      const first = ServiceProcess.run('lock', dataDir);
      await first.next();

      await expect(lockDataDir(dataDir)).rejects.toThrow(
        `DATA_DIR ${dataDir} is in use by another running service (pid ${first.pid})`,
      );
      await first.end('SIGKILL');
    }));

  test('ends with its process, even by kill -9', () =>
    withDataDir(async (dataDir) => {
      const first = ServiceProcess.run('lock', dataDir);
      await first.next();
      await first.end('SIGKILL');

      const lock = await lockDataDir(dataDir);
      await lock.release();
    }));

  test('has one winner among services that start at once', () =>
    withDataDir(async (dataDir) => {
      const services = Array.from({ length: 8 }, () => ServiceProcess.run('lock', dataDir));
      const answers = await Promise.all(services.map((service) => service.next()));

      const winners = services.filter((_, index) => answers[index]?.ready === true);
      expect(winners).toHaveLength(1);
      const errors = answers.filter(({ ready }) => ready !== true).map(({ error }) => error);
      expect(new Set(errors)).toEqual(
        new Set([
          `DATA_DIR ${dataDir} is in use by another running service (pid ${winners[0]?.pid})`,
        ]),
      );
      await Promise.all(services.map((service) => service.end('SIGKILL')));
    }));

  test('lets a start wait for a service that is stopping', () =>
    withDataDir(async (dataDir) => {
      const first = ServiceProcess.run('lock', dataDir);
      await first.next();
      await first.signal('SIGTERM');
      expect(await first.next()).toEqual({ stopping: true });

      let locked = false;
      const second = lockDataDir(dataDir).then((lock) => {
        locked = true;
        return lock;
      });
      await new Promise((resolve) => {
        setTimeout(resolve, 200);
      });
      expect(locked).toBe(false);
      await first.end('SIGUSR2');
      await (await second).release();
    }));

  test('can be taken again by the process that released it, and held once only', () =>
    withDataDir(async (dataDir) => {
      const first = await lockDataDir(dataDir);
      await expect(lockDataDir(dataDir)).rejects.toThrow(`(pid ${process.pid})`);
      await first.release();
      await first.release();
      const second = await lockDataDir(dataDir);
      await second.release();
    }));

  test('says that the path is a file', () =>
    withDataDir(async (dataDir) => {
      await writeFile(join(dataDir, 'file'), '');
      await expect(lockDataDir(join(dataDir, 'file'))).rejects.toThrow('is not a folder');
      await expect(lockDataDir(join(dataDir, 'file', 'below'))).rejects.toThrow('is not a folder');
    }));

  testWith(['an ordinary user'], 'says that the folder is not writable', () =>
    withDataDir(async (dataDir) => {
      const folder = join(dataDir, 'sealed');
      await mkdir(folder);
      await chmod(folder, 0o500);
      await expect(lockDataDir(folder)).rejects.toThrow(`DATA_DIR ${folder} is not writable`);
    }),
  );
});
