import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { readPackageHosts } from '../../../src/supervisor/package-hosts.js';
import type { SandboxDriver } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { bash, outcomeOf, type DriverUnderTest } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import type { FakeSprites } from '../../support/sprites/fake-sprites.js';
import { installSprites } from './sprites-installations.js';

const signal = new AbortController().signal;
/** Over files, users and processes: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, chroot, setfcap. */
const ROOT_OF_A_CONTAINER = 0x800401fbn;

/**
 * Attacks from inside a sprite. The machine of the fake has a user with all capabilities, sudo, and a socket of the
 * vendor that everybody may use: the worst that a real one may be.
 */
describeWith(['root', 'mount namespaces', 'curl'], 'an agent in a sandbox (sprites)', () => {
  let installation: DriverUnderTest & { fake: FakeSprites };
  let driver: SandboxDriver;
  const sandboxId = randomUUID();

  beforeAll(async () => {
    installation = await installSprites();
    ({ driver } = installation);
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    await driver.create({ sandboxId, writableRoot: true, network, signal });
  });

  // Each step is a hook of its own, so that the fake stops whatever fails before.
  afterAll(() => driver.destroy({ sandboxId, signal }));
  afterAll(() => driver.close());
  afterAll(() => installation.dispose());

  async function probe(script: string): Promise<string> {
    const launch = { sandboxId, ...bash(script) };
    await driver.launch(launch);
    const { stdout, stderr } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    return stdout + stderr;
  }

  it('is a user without capabilities, who gets none', async () => {
    const output = await probe(`id -un; grep -E '^(Cap|NoNewPrivs)' /proc/self/status
      sudo -n id -u 2>&1; setpriv --reuid=0 id -u 2>&1; su -c id 2>&1; true`);
    expect(output).toMatch(/^agent\n(Cap\w+:\s0{16}\n){5}NoNewPrivs:\s1\n/);
    expect(output).not.toMatch(/^0$/m);
    expect(output).not.toContain('uid=0');
  });

  it("cannot use the vendor's interface, although its socket is open to everybody", async () => {
    const ask = 'curl -s --max-time 2 --unix-socket /.sprite/api.sock http://s/v1/tasks';
    expect(await probe(`ls /.sprite; ${ask} || echo refused`)).toBe('refused\n');
    // As the supervisor sees it, it is there: it has just held a task by it.
    const { machine } = installation.fake.sprite([...installation.fake.sprites.keys()][0] ?? '');
    const child = machine.spawn({ command: ['sh', '-c', ask] });
    let said = '';
    child.stdout?.on('data', (data: Buffer) => (said += data.toString()));
    await new Promise((resolve) => child.once('close', resolve));
    expect(said).toContain('"tasks"');
  });

  it('sees nothing of the supervisor', async () => {
    const output = await probe(`
      ls -A /.agent-session 2>&1; cat /.agent-session/gateway.json 2>&1
      for pid in $(ls /proc | grep '^[0-9]'); do
        [ "$(stat -c %u /proc/$pid 2>/dev/null)" = 0 ] || continue
        cat /proc/$pid/environ 2>/dev/null; ls /proc/$pid/root/ 2>/dev/null; ls -l /proc/$pid/fd 2>/dev/null
      done; kill -KILL 1 2>&1; true`);
    expect(output).not.toContain('launches');
    expect(output).not.toContain('runtime-');
    expect(output).toContain('Permission denied');
    expect(await probe('echo still here')).toBe('still here\n');
  });

  it('writes nowhere but in its own folders', async () => {
    const output = await probe(`
      for folder in / /usr /usr/local/bin /etc /dev /home /opt /root /var /bin /run /.sprite /.agent-session; do
        touch $folder/probe 2>/dev/null && echo "WROTE $folder"
      done; touch ~/a /workspace/a /tmp/a /var/tmp/a /dev/shm/a && echo fine`);
    expect(output).toBe('fine\n');
  });

  it('has a setup script that is root without the rights of the machine', async () => {
    const { exitCode, outputTail } = await driver.runScript({
      sandboxId,
      as: 'setup',
      signal,
      script: `id -u; touch /usr/local/bin/installed && echo installed
        chown 1234 /usr/local/bin/installed && echo owner
        mount -t tmpfs none /mnt 2>&1; umount /.agent-session 2>&1; ls -A /.agent-session; ls /.sprite
        mknod /tmp/disk b 8 0 2>&1; ls /proc/1/root/ 2>&1; echo x > ~/mine
        grep -E '^Cap(Prm|Eff|Amb)' /proc/self/status
        (setsid sleep 631 >/dev/null 2>&1 &) ; true`,
    });
    expect(exitCode).toBe(0);
    expect(outputTail).toMatch(/^0\ninstalled\nowner\n/);
    expect(outputTail).not.toMatch(/launches|api\.sock|\.init/);
    const held = [...outputTail.matchAll(/^Cap\w+:\s+([0-9a-f]+)$/gm)].map(([, set]) => `0x${set}`);
    expect(held).toHaveLength(3);
    for (const set of held) expect(BigInt(set) & ~ROOT_OF_A_CONTAINER).toBe(0n);
    expect(await probe('cat ~/mine; echo y >> ~/mine; ps -eo args | grep -c "[s]leep 631"')).toBe(
      'x\n0\n',
    );
  });

  it('cannot add to the hosts that package managers may reach', async () => {
    // Another process of the service, which has made no sprite, asks this one.
    const other = await installation.again();
    const before = await other.packageHosts({ sandboxId, signal });
    expect(before).toEqual(await readPackageHosts(signal));
    await probe(`
      echo registry=https://added.example/ | tee ~/.npmrc > /workspace/.npmrc
      mkdir -p ~/.local/bin && printf '#!/bin/sh\necho https://added.example/\n' > ~/.local/bin/npm
      chmod +x ~/.local/bin/npm; npm config get registry`);
    expect(await other.packageHosts({ sandboxId, signal })).toEqual(before);
    expect(await driver.packageHosts({ sandboxId, signal })).toEqual(before);
    const missing = { sandboxId: randomUUID(), signal };
    await expect(other.packageHosts(missing)).rejects.toMatchObject({ kind: 'gone' });
  });

  it('sees no earlier state of the files, of which the vendor keeps some', async () => {
    const sprite = installation.fake.sprite([...installation.fake.sprites.keys()][0] ?? '');
    const id = await sprite.checkpoint('automatic');
    const look = `ls -A /.sprite/checkpoints; [ -e /.sprite/checkpoints/${id} ] && echo seen; true`;
    const child = sprite.machine.spawn({ command: ['sh', '-c', look] });
    let said = '';
    child.stdout?.on('data', (data: Buffer) => (said += data.toString()));
    await new Promise((resolve) => child.once('close', resolve));
    expect(said).toContain(`${id}\nseen\n`);
    expect(await probe(`(${look}) 2>&1`)).not.toMatch(/^(v\d|seen)/m);
    const as = { sandboxId, as: 'setup', signal } as const;
    expect((await driver.runScript({ ...as, script: look })).outputTail).toBe('');
  });
});
