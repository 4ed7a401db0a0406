import { beforeAll } from '@jest/globals';
import { ROOTFS_TIMEOUT_MS } from '../integration/rootfs/shared-rootfs.js';
import { removeAbandoned, sandboxImage } from './docker-engine.js';

/** For a project whose files run over containers: services of this file take their sandboxes from the engine. */
process.env['SANDBOX_DRIVER'] = 'docker';

// The first one makes it, which takes longer than a hook may.
beforeAll(async () => {
  await removeAbandoned();
  await sandboxImage();
}, ROOTFS_TIMEOUT_MS);
