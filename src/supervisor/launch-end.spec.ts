import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { sweepLaunch, sweepUser } from './launch-end.js';
import { LaunchFolder } from './launch-folder.js';
import { identifyProcess, processesOfUser } from './processes.js';

const UID = 1_990_000_077;
/** How often a launch ends while another one starts a process after the other. */
const SWEEPS = 1000;
const isRoot = process.getuid?.() === 0;

/** Only root can make a process that its effective user may not end. */
(isRoot ? it : it.skip)('says so when a process of the user cannot be ended', async () => {
  const child = spawn(
    'python3',
    ['-c', `import os, time; os.setresuid(0, ${UID}, 0); print(1, flush=True); time.sleep(60)`],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const gone = new Promise((resolve) => child.once('exit', resolve));
  try {
    await new Promise((resolve) => child.stdout.once('data', resolve));
    expect(processesOfUser(UID)).toEqual([child.pid]);
    await expect(sweepUser(UID, () => Promise.resolve(true), 3)).rejects.toMatchObject({
      kind: 'unavailable',
    });
    // The user may belong to another sandbox by now.
    await sweepUser(UID, () => Promise.resolve(false));
  } finally {
    child.kill('SIGKILL');
    await gone;
  }
  await sweepUser(UID, () => Promise.resolve(true));
});

(isRoot ? it : it.skip)('lets processes end by themselves before it kills them', async () => {
  const child = spawn('sleep', ['60'], { uid: UID, gid: UID, stdio: 'ignore' });
  const ended = once(child, 'exit');
  let looks = 0;
  await sweepUser(UID, async () => {
    looks += 1;
    if (looks === 2) {
      child.kill('SIGTERM');
      await ended;
    }
    return true;
  });
  expect((await ended)[1]).toBe('SIGTERM');
});

(isRoot ? it : it.skip)('spares what another launch has just started', async () => {
  const launches = await mkdtemp(join(tmpdir(), 'launches-'));
  const folders = [randomUUID(), randomUUID()].map((id) => join(launches, id));
  for (const folder of folders) await mkdir(folder);
  const [ended = '', running = ''] = folders;
  const child = spawn('bash', ['-c', 'while :; do sleep 0.01; done'], {
    uid: UID,
    gid: UID,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const gone = once(child, 'close');
  let said = '';
  child.stderr.on('data', (data: Buffer) => (said += data.toString()));
  try {
    const supervisor = identifyProcess(child.pid ?? 0);
    if (supervisor === null) throw new Error('the other launch has ended');
    new LaunchFolder(running).claimStart({ supervisor });
    for (let n = 0; n < SWEEPS; n += 1) await sweepLaunch(new LaunchFolder(ended), UID);
    expect(child.signalCode).toBeNull();
  } finally {
    child.kill('SIGKILL');
    await gone;
    await rm(launches, { recursive: true });
  }
  expect(said).toBe('');
});
