import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from '@jest/globals';
import { DockerSandboxDriver } from '../../../src/sandboxes/driver/docker/docker-sandbox-driver.js';
import type { DockerSandboxOptions } from '../../../src/sandboxes/driver/docker/options.js';
import { type DriverUnderTest, oneAfterTheOther } from '../../contracts/sandbox-driver.contract.js';
import {
  DOCKER_HOST,
  leftovers,
  removeAbandoned,
  removeInstallation,
  sandboxImage,
} from '../../support/docker-engine.js';
import { remember } from '../../support/installation-notes.js';
import { TEST_LIMITS } from './local-installations.js';

/** Options of an installation that nobody else has. */
export async function newDockerOptions(
  more: Partial<DockerSandboxOptions> = {},
): Promise<DockerSandboxOptions & { name: string }> {
  const name = `test-${randomUUID().slice(0, 8)}`;
  await removeAbandoned();
  await remember(name, DOCKER_HOST);
  return {
    engine: { host: DOCKER_HOST },
    installation: () => Promise.resolve(name),
    image: process.env['SANDBOX_IMAGE'] ?? (await sandboxImage()),
    limits: TEST_LIMITS,
    gateways: [],
    gatewayConfig: { grantKeys: [randomBytes(32).toString('base64url')], trusted: [] },
    // Another runtime of the engine, such as runsc.
    ...(process.env['SANDBOX_RUNTIME'] && { runtime: process.env['SANDBOX_RUNTIME'] }),
    cache: { images: 5, seconds: 3600 },
    buildLimitMs: 900_000,
    ...more,
    name,
  };
}

/** The driver in the test's own process, on a real engine. */
export async function installDocker(
  more: Partial<DockerSandboxOptions> = {},
): Promise<DriverUnderTest> {
  const { name, ...options } = await newDockerOptions(more);
  return {
    driver: new DockerSandboxDriver(options),
    isolated: true,
    again: oneAfterTheOther(() => new DockerSandboxDriver(options)),
    dispose: async () => {
      const left = await leftovers(name);
      await removeInstallation(name);
      expect(left).toEqual([]);
    },
  };
}
