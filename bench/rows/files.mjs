import { readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startHelper } from '../lib/rpc.mjs';
import { startService } from '../lib/service.mjs';

const TRANSFERS = fileURLToPath(new URL('../lib/transfers.mjs', import.meta.url));

export const title = 'Files of a session: 1 GiB down, up and as an archive; a list of 100,000';
export const metrics = {
  down: 'MB a second down',
  up: 'MB a second up',
  archive: 'MB a second archived',
  memoryDown: 'additional memory down, MiB',
  memoryUp: 'additional memory up, MiB',
  memoryArchive: 'additional memory of an archive, MiB',
  list: 'ms for a list of 100,000 in pages of 1,000',
};
export const goals = [
  { label: 'download / cat', metric: 'down', against: 'cat', atLeast: 0.6 },
  { label: 'upload / cat', metric: 'up', against: 'cat', atLeast: 0.6 },
  { label: 'additional memory of a download, MiB', metric: 'memoryDown', atMost: 32 },
  { label: 'additional memory of an upload, MiB', metric: 'memoryUp', atMost: 32 },
  { label: 'additional memory of an archive, MiB', metric: 'memoryArchive', atMost: 32 },
];

/** The reference is `cat` with a socket as its input or output. Both sides read and write the same kind of disk. */
export async function open({ tiny }) {
  const bytes = tiny ? 2 ** 20 : 2 ** 30;
  const entries = tiny ? 1_500 : 100_000;
  const folder = await mkdtemp(join(tmpdir(), 'bench-files-'));
  const client = await startHelper(TRANSFERS);
  const service = await startService({ env: { SANDBOX_DISK: '8GiB' } });
  const id = await service.run(
    `mkdir large many && head -c ${bytes} /dev/urandom >large/file && cd many && seq ${entries} | xargs touch`,
  );
  await service.until(id, 'completed');
  const head = (method, route, more = '') =>
    `${method} /sessions/${id}/files${route} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n` +
    `Authorization: ${service.authorization}\r\n${more}\r\n`;
  const { port } = service;
  const down = () =>
    client.call('receive', { port, head: head('GET', '/content?path=large/file') });
  const archive = () => client.call('receive', { port, head: head('GET', '/archive?path=large') });
  const up = () => {
    const more = `Content-Length: ${bytes}\r\n`;
    return client.call('send', { port, bytes, head: head('PUT', '/content?path=up', more) });
  };
  const speed = ({ ms }) => bytes / 1000 / ms;

  // What the first transfer leaves in memory for good is not what a transfer takes.
  for (const transfer of [down, up, archive]) await transfer();
  const list = async () => {
    const begun = performance.now();
    let after = '';
    for (let seen = 0; seen < entries;) {
      const { data } = await service.get(
        `/sessions/${id}/files?path=many&limit=1000&after=${encodeURIComponent(after)}`,
      );
      if (data.length === 0) throw new Error('the list is too short');
      seen += data.length;
      after = data.at(-1).path;
    }
    return performance.now() - begun;
  };
  const copy = join(folder, 'file');
  writeFileSync(copy, '');
  const catUp = await client.call('startCat', { path: copy, writes: true });
  const catDown = await client.call('startCat', { path: copy, writes: false });
  const contenders = {
    service: async () => {
      const of = async (transfer) => {
        const memory = peakMeter(service.pid);
        const result = await transfer();
        return { speed: speed(result), memory: memory(), received: result.bytes };
      };
      const [first, second, third] = [await of(down), await of(up), await of(archive)];
      if (first.received < bytes || third.received < 100) throw new Error('a transfer was cut');
      return {
        down: first.speed,
        up: second.speed,
        archive: third.speed,
        memoryDown: first.memory,
        memoryUp: second.memory,
        memoryArchive: third.memory,
        list: await list(),
      };
    },
    cat: async () => {
      const sent = await client.call('send', { port: catUp, bytes, head: '' });
      const received = await client.call('receive', { port: catDown, head: '' });
      return { up: speed(sent), down: speed(received) };
    },
  };
  const close = async () => {
    await client.stop();
    await service.stop();
    await rm(folder, { recursive: true, force: true });
  };
  return { contenders, close };
}

/** Resets the peak of the resident memory. @returns a function that returns how much it grew since, in MiB */
function peakMeter(pid) {
  const resident = (field) =>
    Number(
      new RegExp(`${field}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1],
    );
  const before = resident('VmRSS');
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  return () => (resident('VmHWM') - before) / 1024;
}
