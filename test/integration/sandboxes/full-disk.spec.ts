import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { describeWith, testWith } from '../../support/requirements.js';
import { closeDrivers, newDriver, newOptions } from './local-installations.js';

const signal = new AbortController().signal;

describeWith(['sandboxes on this host'], 'a host with a full disk', () => {
  testWith(
    ['root', 'mount namespaces'],
    'makes no sandbox without a hard limit where the others have one',
    async () => {
      const options = await newOptions('strict');
      const { stateDir } = options;
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2M', 'tmpfs', stateDir]);
      try {
        const driver = newDriver(options);
        const create = (): Promise<unknown> => {
          const network = { mode: 'unrestricted', allowedHosts: [] } as const;
          return driver.create({ sandboxId: randomUUID(), writableRoot: false, network, signal });
        };
        await create();
        expect(await driver.limits({ signal })).toMatchObject({ disk: 'hard' });
        // Enough room for the folders and the record of a sandbox, not for its file system.
        const { bavail, bsize } = await statfs(stateDir);
        await writeFile(join(stateDir, 'fill'), Buffer.alloc((bavail - 12) * bsize));
        await expect(create()).rejects.toMatchObject({
          kind: 'failed',
          message: 'the disk of the sandbox cannot be made',
        });
      } finally {
        await closeDrivers();
        execFileSync('umount', ['--lazy', stateDir]);
        execFileSync('rmdir', [stateDir]);
      }
    },
  );
});
