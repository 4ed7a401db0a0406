import { randomUUID } from 'node:crypto';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { startHelper } from '../lib/rpc.mjs';
import { startService } from '../lib/service.mjs';
import { timeSession } from '../lib/sessions.mjs';
import { median } from '../lib/statistics.mjs';

const DRIVER = fileURLToPath(new URL('../references/driver.mjs', import.meta.url));

export const title = 'POST /sessions to the first output of `echo hi`';
export const metrics = {
  ms: 'ms, median',
  own: "the service's own part, ms (beyond the same sandbox with its supervisor)",
};
export const goals = [
  {
    label: 'first output / sandbox with its supervisor',
    metric: 'ms',
    against: 'sandbox',
    atMost: 3,
  },
  { label: 'first output / bare bubblewrap', metric: 'ms', against: 'bare bwrap', atMost: 5 },
  { label: 'first output of `echo`, ms', metric: 'ms', atMost: 40 },
  { label: "service's own part of a start, ms", metric: 'own', atMost: 25 },
];

/** A bare sandbox similar to the service's: every namespace, no capabilities, the host's /usr, as nobody. */
const BARE = [
  process.geteuid() === 0
    ? 'setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs'
    : '',
  'env -i bwrap --unshare-all --cap-drop ALL --die-with-parent --new-session',
  '--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64',
  '--proc /proc --dev /dev --tmpfs /tmp -- /usr/bin/bash',
]
  .join(' ')
  .trim()
  .split(' ');

export async function open({ tiny, profile }) {
  const times = tiny ? 2 : 15;
  const service = await startService({ profile });
  const driver = await startHelper(DRIVER);
  await driver.call('start');
  const medianOf = async (measure) => {
    const all = [];
    for (let at = 0; at < times; at += 1) all.push(await measure());
    return { ms: median(all) };
  };
  const timeSandbox = () => driver.call('run', { id: randomUUID() });
  const contenders = {
    service: async () => {
      // Alternates between them, so that other load on the machine affects both.
      const pairs = [];
      for (let at = 0; at < times; at += 1)
        pairs.push([await timeSession(service), await timeSandbox()]);
      return {
        ms: median(pairs.map(([ms]) => ms)),
        own: median(pairs.map(([ms, sandbox]) => ms - sandbox)),
      };
    },
    sandbox: () => medianOf(timeSandbox),
    'bare bwrap': () => medianOf(timeBare),
  };
  await contenders['bare bwrap']();
  await timeSession(service);
  const close = () => Promise.all([driver.stop(), service.stop()]);
  return { contenders, close };
}

async function timeBare() {
  const [file, ...args] = [...BARE, '-c', 'echo hi'];
  const begun = performance.now();
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const end = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  const outputAt = new Promise((resolve) => {
    child.stdout.once('data', () => resolve(performance.now()));
  });
  const code = await end;
  if (code !== 0) throw new Error(`the bare sandbox ended with ${code}`);
  return (await outputAt) - begun;
}
