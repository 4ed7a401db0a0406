import { describe, expect, test } from '@jest/globals';
import { HostWatch } from './host-watch.js';

const sign = (host: string, seen: string) => ({ driver: 'local', host, seen });
const watch = () => new HostWatch({ lostAfterMs: 1000, longestGapMs: 300 });

describe('a host is lost', () => {
  test('after it was watched being silent for all of the time', () => {
    const hosts = watch();
    for (const now of [0, 250, 500, 750]) expect(hosts.observe([sign('a', '1')], now)).toEqual([]);
    expect(hosts.observe([sign('a', '1'), sign('b', '1')], 1000)).toEqual([sign('a', '1')]);
  });

  test('not when it is heard of in between', () => {
    const hosts = watch();
    for (const now of [0, 250, 500, 750]) hosts.observe([sign('a', '1')], now);
    expect(hosts.observe([sign('a', '2')], 1000)).toEqual([]);
    expect(hosts.observe([sign('a', '2')], 1250)).toEqual([]);
  });

  test('not for a silence during which nobody looked', () => {
    const hosts = watch();
    hosts.observe([sign('a', '1')], 0);
    expect(hosts.observe([sign('a', '1')], 5000)).toEqual([]);
    expect(hosts.observe([sign('a', '1')], 5250)).toEqual([]);
  });

  test('not when its sandboxes were gone in between', () => {
    const hosts = watch();
    for (const now of [0, 250, 500]) hosts.observe([sign('a', '1')], now);
    hosts.observe([], 750);
    expect(hosts.observe([sign('a', '1')], 1000)).toEqual([]);
  });
});
