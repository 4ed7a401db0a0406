import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { readPackageHosts } from '../../src/supervisor/package-hosts.js';
import { MODEL_KEY, usedBy } from '../runtimes/model-endpoint/model-endpoint.js';
import { CLIS } from '../runtimes/support/clis.js';
import { HTTP_SECRET, httpServer, stdioServer } from '../runtimes/support/mcp-servers.js';
import { Rig, type RunningSession } from '../runtimes/support/rig.js';
import { findPlanted } from '../support/planted-secrets.js';
import { describeWith } from '../support/requirements.js';
import { contentsOf } from '../support/sandbox-remains.js';
import { eventually } from '../support/sessions.js';
import { suiteFake } from '../support/sprites/suite.js';

/** Each program is hundreds of megabytes, which npm installs in the sprite. */
const INSTALL_LIMIT_MS = 300_000;
const CLOSED = { domain: '*', action: 'deny' };

describeWith(['sandboxes'], 'the agent programs in sprites', () => {
  let rig: Rig;
  let session: RunningSession | undefined;

  beforeAll(async () => {
    suiteFake().connectTo(await readPackageHosts(AbortSignal.timeout(60_000)));
    rig = await Rig.start();
  });
  afterEach(async () => {
    if (session !== undefined) await rig.remove(session);
    session = undefined;
  });
  afterAll(() => rig.stop());

  test.each(CLIS)(
    '$provider: works with its shell and tool servers, and goes on after a cold wake',
    async ({ provider, model }) => {
      const before = rig.model.requests.length;
      const mcp_servers = [stdioServer('pipes'), httpServer('wires', rig.model.url)];
      const agent = { provider, model, system: 'You are word-system.', mcp_servers };
      const environment = { networking: { type: 'limited', allow_mcp_servers: true } };
      const prompt = [
        'word-apple %%shell echo hello from the first turn > note.txt; echo wrote it%%',
        '%%mcp pipes echo {"text":"through pipes"}%%',
        '%%mcp wires echo {"text":"through wires"}%%',
      ].join('\n');
      session = await rig.session(agent, prompt, { environment, timeout: 240 });
      const first = await rig.finish(session);
      expect(first).toMatchObject({ terminal: { type: 'exit', code: 0 } });
      expect(first.output).toContain('wrote it');
      expect(first.output).toContain('echo through pipes with a secret of 23 characters');
      expect(first.output).toContain('echo through wires with a secret of 33 characters');
      expect(first.output).toMatch(/I was sent \d+ messages with word-system word-apple/);
      const counted = usedBy(rig.model.requests.slice(before));
      const { id } = session;
      const usage = async () =>
        (await rig.http.get(`/sessions/${id}`)).body['usage'] as typeof counted;
      await eventually(async () => (await usage()).requests === counted.requests, 'the usage');
      expect(await usage()).toMatchObject(counted);

      // The network was wider only while npm installed the program.
      const [sprite] = suiteFake().sprites.values();
      const registry = { domain: 'pypi.org', action: 'allow' };
      expect(sprite?.policies).toContainEqual(expect.arrayContaining([registry, CLOSED]));
      expect(sprite?.rules.at(-1)).toEqual(CLOSED);
      expect(sprite?.rules).not.toContainEqual(registry);
      const { found } = findPlanted(await contentsOf(rig.service), [MODEL_KEY, HTTP_SECRET]);
      expect(found).toEqual([]);

      const cold = sprite?.wakes.cold ?? 0;
      await sprite?.goCold();
      await rig.prompt(session, 'word-banana %%shell cat note.txt%%');
      const second = await rig.finish(session, first.terminal.id);
      expect(second).toMatchObject({ terminal: { type: 'exit', code: 0 } });
      expect(second.output).toContain('hello from the first turn');
      expect(second.output).toMatch(/with word-system word-apple word-banana/);
      expect(sprite?.wakes.cold).toBe(cold + 1);
      expect(rig.model.requests.every(({ authorized }) => authorized)).toBe(true);
    },
    INSTALL_LIMIT_MS,
  );
});
