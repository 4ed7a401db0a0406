import { SpritesClient, type Sprite, type SpriteCommand } from '@fly/sprites';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { describeWith } from '../../support/requirements.js';
import { AT_CAPACITY, RATE_LIMITED, UNAVAILABLE } from '../../support/sprites/faults.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import { until } from '../../support/sprites/sprite.js';

/** Everything that the vendor's own client does, against the fake: the fake is faithful where this passes. */
describeWith(['root', 'mount namespaces'], "the vendor's client with the fake", () => {
  const fake = new FakeSprites({ disconnectMs: 300 });
  let client: SpritesClient;
  let sprite: Sprite;

  beforeAll(async () => {
    await fake.start();
    client = new SpritesClient(fake.token, { baseURL: fake.url });
    sprite = await client.createSprite('first', { labels: ['one'] });
  });

  afterAll(() => fake.stop());

  const sh = (script: string) => sprite.execFile('sh', ['-c', script]);

  /** What a command prints, and the code it ends with. */
  async function outcome(command: SpriteCommand): Promise<{ text: string; code: number }> {
    let text = '';
    command.stdout.on('data', (data: Buffer) => (text += data.toString()));
    const code = await new Promise<number>((resolve) => command.once('exit', resolve));
    return { text, code };
  }

  describe('sprites', () => {
    it('are created, found, listed by pages, changed and deleted', async () => {
      for (const n of ['a', 'b', 'c']) await client.createSprite(`page-${n}`);
      const names = (await client.listAllSprites('page-')).map(({ name }) => name);
      const page = await client.listSprites({ prefix: 'page-', maxResults: 2 });
      expect(names).toEqual(['page-a', 'page-b', 'page-c']);
      expect([page.sprites.length, page.hasMore]).toEqual([2, true]);
      const changed = await client.updateSprite('page-a', { labels: ['x'] });
      expect(changed.labels).toEqual(['x']);
      for (const name of names) await client.deleteSprite(name);
      expect(await client.listAllSprites('page-')).toEqual([]);
      await expect(client.getSprite('page-a')).rejects.toMatchObject({ statusCode: 404 });
      expect(await client.getSprite('first')).toMatchObject({ name: 'first', labels: ['one'] });
    });

    it('are refused with a reason', async () => {
      await expect(client.createSprite('first')).rejects.toMatchObject({ statusCode: 409 });
      const stranger = new SpritesClient('other', { baseURL: fake.url });
      await expect(stranger.getSprite('first')).rejects.toMatchObject({ statusCode: 401 });
      fake.faults.next('POST', '/v1/sprites', { refuse: RATE_LIMITED });
      const limited = await client.createSprite('x').catch((error: unknown) => error);
      expect(limited).toMatchObject({ statusCode: 429, retryAfterSeconds: 1 });
      fake.faults.next('POST', '/v1/sprites', { refuse: AT_CAPACITY });
      await expect(client.createSprite('x')).rejects.toMatchObject({ errorCode: AT_CAPACITY.code });
      fake.faults.next('GET', '/v1/sprites', { refuse: UNAVAILABLE });
      await expect(client.getSprite('first')).rejects.toMatchObject({ statusCode: 503 });
      fake.faults.next('GET', '/v1/sprites', { drop: true });
      await expect(client.getSprite('first')).rejects.toThrow('fetch failed');
      fake.faults.next('POST', '/v1/sprites', { loseAnswer: true });
      await expect(client.createSprite('lost-answer')).rejects.toThrow('fetch failed');
      expect(fake.sprites.has('lost-answer')).toBe(true);
      await client.deleteSprite('lost-answer');
    });
  });

  describe('commands', () => {
    it('are real processes of a user with every capability and sudo', async () => {
      const { stdout } = await sh(
        'id -un; grep CapEff /proc/self/status; sudo -n id -u; echo $HOME',
      );
      const [user, capabilities, root, home] = String(stdout).split('\n');
      expect([user, root, home]).toEqual(['sprite', '0', '/home/sprite']);
      expect(capabilities).toMatch(/[1-9a-f]{8,}$/);
    });

    it('get input, its end, an environment and a directory', async () => {
      const command = sprite.spawn('sh', ['-c', 'pwd; echo "$A-$HOME"; cat; exit 7'], {
        cwd: '/tmp',
        env: { A: 'x', PATH: '/usr/bin:/bin' },
      });
      await once(command, 'spawn');
      const ended = outcome(command);
      command.stdin.end('typed\n');
      expect(await ended).toEqual({ text: '/tmp\nx-\ntyped\n', code: 7 });
    });

    it('carry large outputs unchanged, and errors apart', async () => {
      const { stdout, stderr } = await sh('seq 300000; echo wrong >&2');
      expect(String(stdout)).toBe(Array.from({ length: 300_000 }, (_, i) => `${i + 1}\n`).join(''));
      expect(stderr).toBe('wrong\n');
    });

    it('get signals', async () => {
      const command = sprite.spawn('sh', [
        '-c',
        'trap "exit 9" USR1; echo on; while :; do sleep 0.05; done',
      ]);
      const ended = outcome(command);
      await once(command.stdout, 'data');
      command.kill('SIGUSR1');
      expect((await ended).code).toBe(9);
    });

    it('run over plain HTTP', async () => {
      const run = sprite.execFileHTTP('sh', ['-c', 'echo "$(cat) $A"'], {
        input: 'in',
        env: { A: 'x' },
      });
      expect((await run).stdout).toBe('in x\n');
      const failing = sprite.execFileHTTP('sh', ['-c', 'exit 3']);
      await expect(failing).rejects.toMatchObject({ result: { exitCode: 3 } });
    });

    it('end some time after their client left, and are listed and killed', async () => {
      const command = sprite.spawn('sleep', ['621']);
      await once(command, 'spawn');
      await until(async () => (await sprite.listSessions()).length === 1);
      (command as unknown as { wsCmd: { close(): void } }).wsCmd.close();
      await until(async () => (await sprite.listSessions()).length === 0);
      const other = sprite.spawn('sleep', ['622']);
      await once(other, 'spawn');
      const ended = outcome(other);
      const [session] = await sprite.listSessions();
      for await (const _event of await sprite.killSession(session?.id ?? '', 'KILL'));
      expect((await ended).code).toBe(137);
      const { stdout } = await sh('ps -eo args | grep -c "[s]leep 62" || true');
      expect(stdout).toBe('0\n');
    });

    it('with a terminal go on, and show the last of their output to who attaches', async () => {
      const command = sprite.createSession('sh', ['-c', 'seq 3000; read line; echo "got $line"']);
      command.on('error', () => undefined);
      let seen = '';
      command.stdout.on('data', (data: Buffer) => (seen += data.toString()));
      await until(() => seen.includes('\n3000\r\n'));
      const [session] = await sprite.listSessions();
      (command as unknown as { wsCmd: { close(): void } }).wsCmd.close();
      const again = sprite.attachSession(session?.id ?? '');
      const ended = outcome(again);
      await once(again, 'spawn');
      again.stdin.write('hello\n');
      const { text } = await ended;
      expect(text).toContain('got hello');
      expect(text).not.toContain('\n1\r\n');
    });
  });

  describe('connections', () => {
    it.each([
      ['closes without a frame', { closeAtOnce: true }],
      ['is cut inside a frame', { cutAfter: 700 }],
      ['closes without the exit code', { loseExit: true }],
    ])('give no exit code when the server %s', async (_what, fault) => {
      fake.faults.next('WS', 'exec', fault);
      const command = sprite.spawn('seq', ['1000']);
      command.on('error', () => undefined);
      expect((await outcome(command)).code).toBe(-1);
    });

    it('are refused to a sprite that has vanished', async () => {
      await client.createSprite('vanishing');
      await fake.vanish('vanishing');
      await expect(client.sprite('vanishing').execFile('true')).rejects.toThrow('WebSocket');
    });
  });

  it('files are written, read, listed, moved and removed', async () => {
    const files = sprite.filesystem('/home/sprite');
    await files.writeFile('deep/a', Buffer.from([0, 255, 10]), { mode: 0o600 });
    expect(await files.readFile('deep/a')).toEqual(Buffer.from([0, 255, 10]));
    expect((await files.stat('deep/a')).mode).toBe(0o600);
    await files.rename('deep/a', 'deep/b');
    await files.copyFile('deep/b', 'deep/c');
    await files.chmod('deep/c', 0o755);
    expect(await files.readdir('deep')).toEqual(expect.arrayContaining(['b', 'c']));
    await files.rm('deep', { recursive: true });
    expect(await files.exists('deep')).toBe(false);
    await expect(files.readFile('deep/a')).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('policies refuse names, and what is not a policy is refused', async () => {
    const look = async (name: string) =>
      (await sh(`getent ahostsv4 ${name} >/dev/null && echo found || echo refused`)).stdout;
    fake.names.addresses.set('good.example', '192.0.2.1').set('bad.example', '192.0.2.2');
    expect(await look('bad.example')).toBe('found\n');
    const rules = [
      { domain: 'good.example', action: 'allow' as const },
      { domain: '*', action: 'deny' as const },
    ];
    await sprite.updateNetworkPolicy({ rules });
    expect(await sprite.getNetworkPolicy()).toEqual({ rules });
    expect([await look('good.example'), await look('bad.example')]).toEqual([
      'found\n',
      'refused\n',
    ]);
    await sprite.updateNetworkPolicy({ rules: [] });
    expect(await look('bad.example')).toBe('found\n');
    const broken = { rules: [{ domain: 'a b', action: 'allow' as const }] };
    await expect(sprite.updateNetworkPolicy(broken)).rejects.toThrow('Invalid policy');
  });

  it('services run, are started again when they end, and stay stopped', async () => {
    const script = 'echo x >> /home/sprite/starts; exec sleep 623';
    await (
      await sprite.createService('s', { cmd: 'sh', args: ['-c', script] })
    ).processAll(() => undefined);
    const starts = async () => (await sh('grep -c x /home/sprite/starts || true')).stdout;
    await until(async () => (await starts()) === '1\n');
    await sprite.signalService('s', 'KILL');
    await until(async () => (await starts()) === '2\n');
    await fake.sprite('first').services.restartAll();
    await until(async () => (await starts()) === '3\n');
    await (await sprite.stopService('s')).processAll(() => undefined);
    expect((await sprite.getService('s')).state?.status).toBe('stopped');
    await sprite.deleteService('s');
    expect(await sprite.listServices()).toEqual([]);
  });

  it('checkpoints keep files, and restoring one ends all processes', async () => {
    await sh('echo before > /home/sprite/kept');
    await (await sprite.createCheckpoint('first')).processAll(() => undefined);
    const [checkpoint] = await sprite.listCheckpoints();
    expect(checkpoint?.comment).toBe('first');
    await sh(
      'echo after > /home/sprite/kept; touch /home/sprite/new; setsid sleep 624 >/dev/null 2>&1 &',
    );
    await (await sprite.restoreCheckpoint(checkpoint?.id ?? '')).processAll(() => undefined);
    // The vendor answers before it restores.
    await until(() => fake.sprite('first').restored === 1);
    const { stdout } = await sh(
      'cat /home/sprite/kept; ls /home/sprite/new 2>&1 | wc -c; ps -e | grep -c "[s]leep"; true',
    );
    expect(String(stdout)).toMatch(/^before\n\d+\n0\n$/);
  });

  describe('sleep', () => {
    const sleeper = new FakeSprites({ pauseMs: 300, coldMs: 600_000 });
    beforeAll(() => sleeper.start());
    afterAll(() => sleeper.stop());

    it('comes when nothing is done; processes go on after a warm wake and are gone after a cold one', async () => {
      const other = await new SpritesClient(sleeper.token, { baseURL: sleeper.url }).createSprite(
        's',
      );
      const state = sleeper.sprite('s');
      const run = async (script: string) => (await other.execFile('sh', ['-c', script])).stdout;
      await run(
        'setsid sleep 625 >/dev/null 2>&1 & echo kept > /home/sprite/kept; echo x > /tmp/lost',
      );
      await until(() => state.status === 'warm');
      expect(await run('ps -eo args | grep -c "[s]leep 625"')).toBe('1\n');
      expect(state.wakes).toEqual({ warm: 1, cold: 0 });
      await state.goCold();
      expect(await run('ps -eo args | grep -c "[s]leep 625"; cat /home/sprite/kept; ls /tmp')).toBe(
        '0\nkept\n',
      );
      expect(state.wakes.cold).toBe(1);
    });

    it('waits for a task, which any process can hold by the socket', async () => {
      const state = sleeper.sprite('s');
      const put = (expire: string) =>
        `curl -s --unix-socket /.sprite/api.sock -X PUT http://s/v1/tasks/t -d '{"expire":"${expire}"}'`;
      const other = new SpritesClient(sleeper.token, { baseURL: sleeper.url }).sprite('s');
      await other.execFile('sh', ['-c', put('20m')]);
      expect(state.tasks.live).toEqual(['t']);
      await other.execFile('sh', ['-c', 'sleep 0.8']);
      expect(state.status).toBe('running');
      await other.execFile('sh', ['-c', put('10ms')]);
      await until(() => state.status === 'warm');
    });
  });
});
