import { setTimeout as delay } from 'node:timers/promises';
import { cpuMeter } from '../lib/processes.mjs';
import { startPublisher, startReader, startSourceService } from '../lib/subjects.mjs';
import { feedOf } from '../references/feeds.mjs';
import { available } from '../references/index.mjs';

const AHEAD = 1500;
const NO_END = 100_000_000;

/**
 * Delivers messages at the maximum rate. The source may only be this far ahead of the slowest reader, so that no
 * messages are lost or skipped and the readers' speed is measured.
 * @param allow lets the source write up to this message of each channel.
 */
async function saturate({ reader, allow, pids, windowMs, warmupMs, ahead = AHEAD }) {
  let allowed = 0;
  reader.on('progress', ({ slowest }) => {
    if (slowest + ahead / 2 <= allowed) return;
    allowed = Math.floor(slowest) + ahead;
    void allow(allowed);
  });
  await reader.call('begin', { tellProgress: true });
  await delay(warmupMs);
  const before = await reader.call('look');
  const cpu = cpuMeter(pids.server);
  const databaseCpu = cpuMeter(pids.database);
  await delay(windowMs);
  const after = await reader.call('look');
  const [serverMs, databaseMs] = [cpu(), databaseCpu()];
  const { problems } = await reader.call('end');
  await reader.call('close');
  if (problems.length > 0) throw new Error(problems.join('; '));
  const messages = after.messages - before.messages;
  return {
    rate: (messages * 1000) / (after.at - before.at),
    cpu: (serverMs * 1000) / messages,
    databaseCpu: (databaseMs * 1000) / messages,
    perEvent: messages / (after.events - before.events),
  };
}

/** Defines a row with a number of streams and readers of each. */
export function fanoutRow({ title, goals, channels, readers, references: names }) {
  const metrics = {
    rate: 'messages delivered a second',
    cpu: 'server CPU per message, µs',
    databaseCpu: 'database CPU per message, µs',
  };
  const open = async ({ say, tiny, profile }) => {
    const [channelCount, readerCount] = tiny
      ? [Math.min(channels, 4), Math.min(readers, 4)]
      : [channels, readers];
    const [windowMs, warmupMs] = tiny ? [300, 200] : [3_000, 1_000];
    const reader = await startReader();
    const publisher = await startPublisher();
    const service = await startSourceService({ profile });
    const references = await available(names, say);
    const follow = (streams, { ids, same = true }) =>
      channelCount === 1 && same
        ? reader.call('openSame', { target: streams[0], count: readerCount, ids })
        : reader.call('openEach', {
            targets: streams.flatMap((stream) => Array.from({ length: readerCount }, () => stream)),
            ids,
          });

    const contenders = {
      service: async () => {
        await service.allow(0);
        const sessions = [];
        for (let at = 0; at < channelCount; at += 1) sessions.push(await service.source(NO_END));
        for (const id of sessions) await service.until(id, 'running');
        await follow(
          sessions.map((id) => service.stream(id)),
          { ids: true },
        );
        const database = service.pids().filter((pid) => pid !== service.pid);
        const pids = { server: [service.pid], database };
        const { allow } = service;
        const result = await saturate({ reader, allow, pids, windowMs, warmupMs });
        for (const id of sessions) await service.post(`/sessions/${id}/terminate`);
        return result;
      },
    };
    let round = 0;
    for (const [name, reference] of Object.entries(references)) {
      const feed = feedOf(reference, publisher);
      contenders[name] = async () => {
        round += 1;
        const channelNames = Array.from({ length: channelCount }, (_, at) => `many-${round}-${at}`);
        await feed.open(channelNames);
        await follow(
          channelNames.map((channel) => reference.stream(channel)),
          reference,
        );
        await feed.saturate(channelNames);
        const pids = { server: reference.pids(), database: [] };
        const { allow } = feed;
        const { ahead } = reference;
        const result = await saturate({ reader, allow, pids, windowMs, warmupMs, ahead });
        await feed.stop();
        return result;
      };
    }
    const close = () =>
      Promise.all(
        [reader, publisher, service, ...Object.values(references)].map((one) => one.stop()),
      );
    return { contenders, close };
  };
  return { title, goals, metrics, open };
}
