import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { LocalSandboxDriver } from '../../../src/sandboxes/driver/local/local-sandbox-driver.js';
import type { LocalSandboxOptions } from '../../../src/sandboxes/driver/local/options.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { ROOTFS_TIMEOUT_MS, sharedRootfs, SHARED_ROOTFS_DIR } from '../rootfs/shared-rootfs.js';
import { closeDrivers, newDriver, newOptions } from './local-installations.js';

const signal = new AbortController().signal;
const network = { mode: 'unrestricted', allowedHosts: [] } as const;

describe('a sandbox that installs software', () => {
  let options: LocalSandboxOptions;
  let template: string;
  let driver: LocalSandboxDriver;
  const sandboxId = randomUUID();

  beforeAll(async () => {
    template = await sharedRootfs();
    options = { ...(await newOptions('strict')), rootfsDir: SHARED_ROOTFS_DIR };
    driver = newDriver(options);
    await driver.create({ sandboxId, writableRoot: true, network, signal });
  }, ROOTFS_TIMEOUT_MS);

  afterAll(async () => {
    await driver.destroy({ sandboxId, signal });
    await closeDrivers();
    expect(readdirSync(options.stateDir).filter((name) => name.includes(sandboxId))).toEqual([]);
    await rm(options.stateDir, { recursive: true });
  });

  const setup = (script: string) => driver.runScript({ sandboxId, script, as: 'setup', signal });

  async function agent(script: string): Promise<string> {
    const launch = { sandboxId, ...bash(`exec 2>&1; ${script}`) };
    await driver.launch(launch);
    return (await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout;
  }

  it('installs a Debian package as root, which the agent then runs, and the host never sees', async () => {
    const { exitCode, outputTail } = await setup(
      'id -u; apt-get -qq update && apt-get install -y -qq --no-install-recommends hello 2>&1',
    );
    expect({ exitCode, outputTail }).toMatchObject({ exitCode: 0 });
    expect(await agent('hello; id -un; dpkg -s hello | grep ^Status')).toBe(
      'Hello, world!\nagent\nStatus: install ok installed\n',
    );
    expect(readdirSync('/usr/bin')).not.toContain('hello');
    expect(readdirSync(join(template, 'usr/bin'))).not.toContain('hello');
  });

  it('lets a setup script use accounts and ownership as if it were root', async () => {
    const result = await setup(`
      set -e
      useradd worker; chown worker:worker /srv; chown 1234:1234 /opt; getent passwd worker >/dev/null
      echo 'echo from-setup' > /usr/local/bin/from-setup; chmod 755 /usr/local/bin/from-setup
      echo mine > ~/made-by-setup; echo mine > /workspace/made-by-setup`);
    expect(result).toMatchObject({ exitCode: 0 });
    expect(
      await agent(
        'from-setup; echo more >> ~/made-by-setup; cat ~/made-by-setup; rm /workspace/made-by-setup',
      ),
    ).toBe('from-setup\nmine\nmore\n');
  });

  it('gives neither setup nor the agent what would reach beyond the sandbox', async () => {
    const script = `
      grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'
      mount -t tmpfs none /mnt 2>/dev/null && echo MOUNTED; unshare -U true 2>/dev/null && echo NAMESPACE
      mknod /disk b 8 0 2>/dev/null && echo DEVICE; echo x 2>/dev/null > /proc/sys/kernel/core_pattern && echo WROTE
      touch /at-root 2>/dev/null && echo ROOT; ls / | tr '\\n' ' '`;
    const { outputTail } = await setup(script);
    // CHOWN, DAC_OVERRIDE, FOWNER, SETFCAP.
    expect(outputTail).toMatch(
      /^CapEff:000000008000000b\nCapBnd:000000008000000b\nNoNewPrivs:1\nSeccomp:2\n(?:bin|boot|dev|etc) /,
    );
    const seen = await agent(script);
    expect(seen).toMatch(/^CapEff:0{16}\nCapBnd:0{16}\nNoNewPrivs:1\nSeccomp:2\n/);
    expect(outputTail + seen).not.toMatch(/MOUNTED|NAMESPACE|DEVICE|WROTE|ROOT/);
  });

  it('follows no link that the agent puts where the next turn mounts', async () => {
    await agent(`cd /; for f in usr/x etc/resolv.conf var/tmp opt root srv; do rm -rf /$f; ln -s /proc/1/root/tmp /$f; done;
      mv /etc /etc2; mv /usr /usr2; rm -rf /etc/ssl; ln -s / /etc/ssl; echo x > /etc/agent-was-here`);
    expect(
      await agent(
        'cat /etc/agent-was-here; ls -d /tools /workspace /home/agent 2>/dev/null | tail -1',
      ),
    ).toBe('x\n/workspace\n');
  });

  it('keeps its system when it is created again', async () => {
    await driver.create({ sandboxId, writableRoot: true, network, signal });
    expect(await agent('hello')).toBe('Hello, world!\n');
  });
});
