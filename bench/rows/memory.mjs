import { cpuMeter } from '../lib/processes.mjs';
import { startReader, startSourceService } from '../lib/subjects.mjs';
import { available } from '../references/index.mjs';

export const title = 'Replay of a running session from memory';
export const metrics = {
  megabytes: 'MB a second',
  ms: 'ms for one replay',
  cpu: 'server CPU per replay, ms',
};
export const goals = [
  {
    label: 'replay from memory / bare Node with slabs',
    metric: 'megabytes',
    against: 'bare-node',
    atLeast: 0.7,
  },
];

/** The amount that a session keeps in memory; the reference has the same bytes in slabs of 64 KiB. */
export async function open({ say, tiny, profile }) {
  const messages = tiny ? 500 : 32_000;
  const times = tiny ? 5 : 20;
  const reader = await startReader();
  const service = await startSourceService({ profile });
  const { 'bare-node': bare } = await available(['bare-node'], say);
  await service.allow(0);
  const id = await service.source(100_000_000);
  const watcher = await startReader();
  const stream = service.stream(id);
  await watcher.call('openEach', { targets: [stream], ids: true });
  await service.allow(messages);
  for (let seen = 0; seen < messages;) ({ messages: seen } = await watcher.call('look'));
  const body = await capture(stream, messages);
  await bare.slabs(body);

  const replay = async (target, pid) => {
    const cpu = cpuMeter([pid]);
    let ms = 0;
    for (let at = 0; at < times; at += 1)
      ms += (await reader.call('replay', { target, bytes: body.length, check: false })).ms;
    return {
      megabytes: (body.length * times) / 1000 / ms,
      ms: ms / times,
      cpu: cpu() / times,
    };
  };
  const contenders = {
    service: () => replay(stream, service.pid),
    'bare-node': () => replay(bare.slabStream(), bare.pids()[0]),
  };
  const close = async () => {
    await watcher.stop();
    await Promise.all([reader, service, bare].map((one) => one.stop()));
  };
  return { contenders, close };
}

/** The bytes of the stream up to this message, after checking that it is there. */
async function capture({ port, path, headers }, messages) {
  const end = new AbortController();
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers, signal: end.signal });
  const parts = [];
  for await (const part of response.body) {
    parts.push(part);
    const tail = Buffer.concat(parts.slice(-3)).toString();
    if (tail.includes(`@s=${messages} `) && tail.endsWith('\n\n')) break;
  }
  end.abort();
  return Buffer.concat(parts);
}
