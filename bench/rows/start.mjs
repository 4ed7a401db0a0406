import { randomUUID } from 'node:crypto';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { startHelper } from '../lib/rpc.mjs';
import { startService } from '../lib/service.mjs';
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
  { label: "service's own part of a start, ms", metric: 'own', atMost: 25 },
];

/** About what the service's own sandbox is made of: every namespace, no capabilities, the host's /usr, as nobody. */
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
      // One after the other, so that whatever else the machine does falls on both.
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

async function timeSession(service) {
  const begun = performance.now();
  const id = await service.run('echo hi');
  const response = await fetch(`${service.url}/sessions/${id}/stream`, {
    headers: { authorization: service.authorization },
  });
  let text = '';
  let at;
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (at === undefined && text.includes('"type":"output"')) at = performance.now();
  }
  if (at === undefined || !text.includes('"type":"exit"'))
    throw new Error(`the session did not end well:\n${text}`);
  // Its sandbox would be kept for the next prompt.
  await service.post(`/sessions/${id}/terminate`);
  return at - begun;
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
