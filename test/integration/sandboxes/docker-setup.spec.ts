import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { DockerSandboxDriver } from '../../../src/sandboxes/driver/docker/docker-sandbox-driver.js';
import type { NetworkPolicy } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { leftovers, removeInstallation } from '../../support/docker-engine.js';
import { describeWith } from '../../support/requirements.js';
import { newDockerOptions } from './docker-installations.js';

const signal = new AbortController().signal;
const network = { mode: 'unrestricted', allowedHosts: [] } as const;

describeWith(['a Docker engine', 'root', 'debootstrap'], 'docker sandboxes', () => {
  let name: string;
  let driver: DockerSandboxDriver;

  beforeAll(async () => {
    const options = await newDockerOptions();
    options.limits = { ...options.limits, diskBytes: 64 * 2 ** 20 };
    name = options.name;
    driver = new DockerSandboxDriver(options);
  }, 300_000);

  afterAll(async () => {
    const left = await leftovers(name);
    await removeInstallation(name);
    expect(left).toEqual([]);
  }, 300_000);

  async function create(policy: NetworkPolicy = network): Promise<string> {
    const id = randomUUID();
    await driver.create({ sandboxId: id, writableRoot: true, network: policy, signal });
    return id;
  }

  describe('limit a setup script that stops its supervisor', () => {
    const setup = async (script: string, reusable: boolean) => {
      const id = await create();
      const ended = await driver
        .runScript({ sandboxId: id, script, as: 'setup', reusable, signal })
        .catch((error: unknown) => error);
      // No process of it is running any more.
      const launch = { sandboxId: id, ...bash('pgrep -c sleep') };
      await driver.launch(launch);
      expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout).toBe('0\n');
      await driver.destroy({ sandboxId: id, signal });
      return ended;
    };
    const fill = (path: string) =>
      `pkill -STOP -f 'main.js|follow.js'; head -c 200M /dev/zero > ${path}; sleep 600`;

    it.each([
      ['its system', '/big', false],
      ['its workspace', '/workspace/big', false],
      ['an image', '/big', true],
    ])('to its disk, in %s', async (_, path, reusable) => {
      expect(await setup(fill(path), reusable)).toMatchObject({
        kind: 'failed',
        message: 'the sandbox is out of disk space',
      });
    });

    it('and ends it', async () => {
      expect(await setup('pkill -STOP -f main.js; sleep 600', false)).toMatchObject({
        kind: 'failed',
        message: 'the script was interrupted',
      });
    });
  });

  it.each([false, true])(
    'keep the files of the service in place, whatever a setup script permits (reusable: %s)',
    async (reusable) => {
      const id = await create();
      // Without the mount, the spool's path would lead to a folder of the agent.
      const script = `chown 1000:1000 / /opt /var /var/spool; chmod 777 /
      mkdir /else; mv /.agent-* /else; ln -sT /workspace /.agent-spool; true`;
      await driver.runScript({ sandboxId: id, script, as: 'setup', reusable, signal });
      const launch = {
        sandboxId: id,
        ...bash(
          'stat -c "%n %U %a" / /.agent-*; for i in /opt /var /.agent-session; do mv $i /moved; done; ls -d /moved',
        ),
      };
      await driver.launch(launch);
      const { stdout } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
      expect(stdout).toBe('/ root 755\n/.agent-session root 755\n/.agent-spool root 700\n');
      await driver.destroy({ sandboxId: id, signal });
    },
  );

  it('accept the largest network policy that is allowed', async () => {
    const label = 'a'.repeat(60);
    const allowedHosts = Array.from(
      { length: 256 },
      (_, i) => `${i}.${label}.${label}.${label}.example`,
    );
    const limited = { mode: 'limited', allowedHosts } as const;
    const id = await create(limited);
    await driver.restrictNetwork({ sandboxId: id, network: limited, signal });
    const script = { script: 'echo installed', as: 'setup', reusable: true, signal } as const;
    expect(await driver.runScript({ sandboxId: id, ...script })).toMatchObject({ exitCode: 0 });
    await driver.destroy({ sandboxId: id, signal });
  });
});
