import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { KubePod } from '../../src/sandboxes/driver/kubernetes/kube-objects.js';
import type { SandboxDriver } from '../../src/sandboxes/driver/sandbox-driver.js';
import { bash, outcomeOf, type Outcome } from '../contracts/sandbox-driver.contract.js';
import { describeWith } from '../support/requirements.js';
import { installKubernetes, type KubernetesInstallation } from './kubernetes-installations.js';

const signal = new AbortController().signal;
const OPEN = { mode: 'unrestricted', allowedHosts: [] } as const;
const LOST = { kind: 'exit', reason: 'lost', exitCode: null };

describeWith(['a Kubernetes cluster'], 'the pod of a sandbox', () => {
  let installation: KubernetesInstallation;
  let driver: SandboxDriver;
  let sandboxId: string;

  beforeAll(async () => {
    installation = await installKubernetes({ idleSeconds: 4 });
    ({ driver } = installation);
    sandboxId = randomUUID();
    await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
  }, 120_000);

  afterAll(async () => {
    for (const id of await driver.list({ signal })) await driver.destroy({ sandboxId: id, signal });
    await driver.close();
    await installation.dispose();
  }, 120_000);

  async function run(script: string): Promise<Outcome> {
    const launch = { sandboxId, ...bash(script) };
    await driver.launch(launch);
    return outcomeOf(driver.follow({ ...launch, offset: 0 }));
  }

  const podPath = (): string => `${installation.path}/pods/${installation.names.of(sandboxId)}`;
  const pod = (): Promise<KubePod> =>
    installation.api.request<KubePod>({ method: 'GET', path: podPath(), signal });

  /** Begins a launch that runs until somebody ends it, and waits until it has written a line. */
  async function begin(script: string) {
    const launch = { sandboxId, ...bash(`echo ran >> ~/runs; echo begun; ${script}; sleep 600`) };
    await driver.launch(launch);
    for await (const event of driver.follow({ ...launch, offset: 0 })) {
      if (event.kind === 'chunk') break;
    }
    return launch;
  }

  it('ends when it is idle, and another one continues with its files', async () => {
    expect(
      (await run('echo kept > ~/kept; umask 077; mkdir ~/.ssh; echo t > /tmp/t')).exit,
    ).toMatchObject({ exitCode: 0 });
    const { uid } = (await pod()).metadata;
    while ((await pod()).status?.phase !== 'Succeeded') await delay(200);
    const { stdout } = await run('cat ~/kept /tmp/t; stat -c %a ~/.ssh ~ /tmp');
    expect(stdout).toBe('kept\nt\n700\n700\n1777\n');
    expect((await pod()).metadata.uid).not.toBe(uid);
  });

  it('says that a launch is lost whose pod was removed, and does not launch it again', async () => {
    const launch = await begin('true');
    await installation.api.request({ method: 'DELETE', path: podPath(), signal });
    const { stdout, exit } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    expect(stdout).toBe('begun\n');
    expect(exit).toEqual(LOST);
    await driver.launch(launch);
    expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).exit).toEqual(LOST);
    expect((await run('cat ~/runs; rm ~/runs')).stdout).toBe('ran\n');
  });

  it('ends with all its processes when an agent kills the shim', async () => {
    const { uid } = (await pod()).metadata;
    const launch = await begin(`kill -KILL $(pgrep -f shim.js)`);
    expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).exit).toEqual(LOST);
    expect((await run('cat ~/runs; rm ~/runs; pgrep -c sleep')).stdout).toBe('ran\n0\n');
    expect((await pod()).metadata.uid).not.toBe(uid);
  });

  it('leaves nothing of a launch whose collecting process an agent kills', async () => {
    const script = `(setsid sleep 611 &); kill -KILL $PPID`;
    const launch = { sandboxId, ...bash(`${script}; sleep 611`) };
    await driver.launch(launch);
    await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    expect((await run('ps -eo args | grep -c "[s]leep 611"')).stdout).toBe('0\n');
  });

  it('is removed with its volume also while it starts', async () => {
    const id = randomUUID();
    const stop = new AbortController();
    const made = driver.create({
      sandboxId: id,
      writableRoot: false,
      network: OPEN,
      signal: stop.signal,
    });
    made.catch(() => undefined);
    while ((await driver.exists({ sandboxId: id, signal })) !== 'yes') await delay(20);
    stop.abort();
    await expect(made).rejects.toMatchObject({ kind: 'aborted' });
    await driver.destroy({ sandboxId: id, signal });
    expect(await driver.exists({ sandboxId: id, signal })).toBe('no');
    expect(await driver.list({ signal })).not.toContain(id);
  });
});
