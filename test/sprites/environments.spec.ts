import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { readPackageHosts } from '../../src/supervisor/package-hosts.js';
import { GIT_TOKEN, type GitSessions, startGitSessions } from '../support/git-sessions.js';
import { findPlanted } from '../support/planted-secrets.js';
import { describeWith } from '../support/requirements.js';
import { contentsOf } from '../support/sandbox-remains.js';
import { leaveNothing } from '../support/sessions.js';
import { HOST_ITSELF } from '../support/sprites/name-server.js';
import type { Sprite } from '../support/sprites/sprite.js';
import { suiteFake } from '../support/sprites/suite.js';
import { PackageIndex } from './package-index.js';

const INDEX = 'packages.example';
/** Packages are downloaded from real registries. */
const INSTALL_LIMIT_MS = 280_000;

describeWith(
  ['sandboxes', 'git http-backend', 'python3'],
  'environments of sessions on sprites',
  () => {
    let at: GitSessions;
    let index: PackageIndex;
    let hosts: readonly string[] = [];

    beforeAll(async () => {
      at = await startGitSessions();
      index = await PackageIndex.start();
      hosts = await readPackageHosts(AbortSignal.timeout(60_000));
      suiteFake().connectTo(hosts);
      suiteFake().names.addresses.set(INDEX, HOST_ITSELF);
    });
    // Hooks of their own, so that each thing stops whatever fails before.
    afterAll(() => index.stop());
    afterAll(() => at.stop());

    const onlySprite = (): Sprite => {
      const [sprite, ...more] = suiteFake().sprites.values();
      if (sprite === undefined || more.length > 0) throw new Error(`${more.length + 1} sprites`);
      return sprite;
    };

    it('have the packages of apt, npm and pip, also after a cold wake, in a limited network', async () => {
      const environment_id = await at.sessions.createEnvironment({
        packages: ['figlet', 'npm:cowsay', 'pip:greeting'],
        env_vars: index.variables(INDEX),
        setup_script: 'figlet -I1 > /opt/setup; id -u >> /opt/setup',
        networking: {
          type: 'limited',
          allowed_hosts: [INDEX],
          allow_package_managers: true,
        },
      });
      const use =
        'cat /opt/setup; figlet -I1; cowsay moo | grep -c moo; python3 -c "import greeting; print(greeting.text)"';
      const expected = '20205\n0\n20205\n1\nhello from pip\n';
      const id = await at.sessions.create(use, { environment_id, timeout: 250 });
      const stream = await at.sessions.stream(id).end(INSTALL_LIMIT_MS);
      expect([stream.output(), stream.last]).toEqual([
        expected,
        expect.objectContaining({ type: 'exit', code: 0 }),
      ]);
      const sprite = onlySprite();
      expect(sprite.rules.at(-1)).toEqual({ domain: '*', action: 'deny' });
      await sprite.goCold();
      await at.sessions.prompt(id, use);
      expect((await at.sessions.stream(id).end()).output()).toBe(expected + expected);
      await leaveNothing(at.service, [at.sessions]);
    }, 300_000);

    it('without package managers in their limited network do not reach registries', async () => {
      const environment_id = await at.sessions.createEnvironment({
        networking: { type: 'limited' },
      });
      const reach = `curl -sI --max-time 20 http://${hosts[0]}/ | head -c 5; echo "$?"`;
      const open = await at.sessions.run(reach);
      expect(open.output()).toBe('HTTP/0\n');
      const limited = await at.sessions.run(reach, { environment_id });
      expect(limited.output()).toBe('0\n');
      await leaveNothing(at.service, [at.sessions]);
    });

    it('have repositories that are cloned and pushed to through the gateway, without their token', async () => {
      const environment_id = await at.sessions.createEnvironment({
        networking: { type: 'limited' },
      });
      const author = '-c user.name=a -c user.email=a@example.com';
      const id = await at.sessions.create(
        `cd private && cat README && git checkout -q -b work && echo more > MORE && git add MORE &&
         git ${author} commit -qm more && git push -q origin work && git rev-parse HEAD`,
        { resources: [at.repository('private')], environment_id },
      );
      const first = await at.sessions.stream(id).end();
      expect(first.last).toMatchObject({ type: 'exit', code: 0 });
      const head = /^second([0-9a-f]{40})\n$/.exec(first.output())?.[1];
      expect(at.git.served).toContainEqual(expect.stringContaining('git-receive-pack'));
      const inside = await contentsOf(at.service);
      expect(findPlanted(inside, [GIT_TOKEN]).found).toEqual([]);
      expect(findPlanted(inside, ['user.name=a']).found).not.toEqual([]);

      await onlySprite().goCold();
      await at.sessions.prompt(
        id,
        'cd private && git fetch -q && git rev-parse origin/work && cat MORE',
      );
      expect((await at.sessions.stream(id).end()).output()).toBe(
        `${first.output()}${head}\nmore\n`,
      );
      const { body } = await at.sessions.http.get(`/sessions/${id}/changes`);
      expect(body.data).toEqual([
        expect.objectContaining({
          mount_path: 'private',
          head_sha: head,
          files: [expect.objectContaining({ path: 'MORE', status: 'added' })],
        }),
      ]);
      await leaveNothing(at.service, [at.sessions]);
    });
  },
);
