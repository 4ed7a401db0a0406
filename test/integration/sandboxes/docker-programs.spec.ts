import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { pack } from 'tar-stream';
import { DockerSandboxDriver } from '../../../src/sandboxes/driver/docker/docker-sandbox-driver.js';
import type { DockerSandboxOptions } from '../../../src/sandboxes/driver/docker/options.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import {
  engine,
  leftovers,
  removeInstallation,
  sandboxImage,
} from '../../support/docker-engine.js';
import { describeWith } from '../../support/requirements.js';
import { newDockerOptions } from './docker-installations.js';

const signal = new AbortController().signal;
const CLOSED = { mode: 'limited', allowedHosts: [] } as const;
const TOOL = { bin: 'agent-tool', package: 'tool', version: '1.0.0', entries: ['tool/cli.sh'] };

/** In place of npm: installs without a network, and says who it is. */
const NPM = `#!/bin/bash
mkdir -p /opt/agent-programs/node_modules/tool
printf '#!/bin/bash\\necho "the tool of the operator"\\n' >/opt/agent-programs/node_modules/tool/cli.sh
`;
/** What a tenant may do to its own system: every program that an installation would use leaves a mark. */
const TENANT = `set -e
for name in npm ln chmod rm; do
  printf '#!/bin/bash\\necho "$0 as $(/usr/bin/id -u)" >>/opt/tenant-ran\\nexec /usr/bin/%s "$@"\\n' $name >/usr/local/bin/$name
  /usr/bin/chmod 755 /usr/local/bin/$name
done
: >/opt/tenant-installed`;

describeWith(
  ['a Docker engine', 'root', 'debootstrap'],
  'agent programs that the image lacks',
  () => {
    const image = `agent-session-test-npm:${randomUUID().slice(0, 8)}`;
    let options: DockerSandboxOptions & { name: string };
    let driver: DockerSandboxDriver;

    beforeAll(async () => {
      const docker = engine();
      const container = await docker.createContainer({
        Image: await sandboxImage(),
        Cmd: ['none'],
      });
      const archive = pack();
      archive.entry({ name: 'usr/local/bin/npm', mode: 0o755 }, NPM);
      archive.finalize();
      await container.putArchive(Readable.from(archive), { path: '/' });
      const [repo, tag] = image.split(':');
      await container.commit({ repo, tag });
      await container.remove();
      options = await newDockerOptions({ image });
      driver = new DockerSandboxDriver(options);
    }, 300_000);

    afterAll(async () => {
      const left = await leftovers(options.name);
      await removeInstallation(options.name);
      await engine().getImage(image).remove({ force: true });
      expect(left).toEqual([]);
    });

    async function output(sandboxId: string, script: string): Promise<string> {
      const launch = bash(script);
      await driver.launch({ sandboxId, ...launch });
      return (await outcomeOf(driver.follow({ sandboxId, ...launch, offset: 0 }))).stdout;
    }

    it('are installed without anything of a tenant being run', async () => {
      const sandboxId = randomUUID();
      await driver.create({ sandboxId, signal, writableRoot: true, network: CLOSED });
      const setup = await driver.runScript({
        sandboxId,
        signal,
        script: TENANT,
        as: 'setup',
        reusable: true,
      });
      expect(setup).toMatchObject({ exitCode: 0 });
      await driver.providePrograms({ sandboxId, signal, network: CLOSED, programs: [TOOL] });
      expect(await output(sandboxId, 'agent-tool; ls /opt; cat /opt/tenant-ran')).toBe(
        'the tool of the operator\nagent-programs\ntenant-installed\n',
      );
      await driver.destroy({ sandboxId, signal });
    });

    it('are there in a sandbox without software of its own', async () => {
      const sandboxId = randomUUID();
      await driver.create({ sandboxId, signal, writableRoot: false, network: CLOSED });
      await driver.providePrograms({ sandboxId, signal, network: CLOSED, programs: [TOOL] });
      expect(await output(sandboxId, 'agent-tool')).toBe('the tool of the operator\n');
      await driver.destroy({ sandboxId, signal });
    });
  },
);
