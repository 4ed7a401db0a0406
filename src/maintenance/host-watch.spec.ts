import { describe, expect, test } from '@jest/globals';
import { HostWatch } from './lost-hosts.service.js';

const heartbeat = (host: string, seen: string) => ({ driver: 'local', host, seen });
const watch = () => new HostWatch({ lostAfterMs: 1000, longestGapMs: 300 });

describe('a host is lost', () => {
  test('after it has sent no heartbeat while it was watched for all of the time', () => {
    const hosts = watch();
    for (const now of [0, 250, 500, 750])
      expect(hosts.observe([heartbeat('a', '1')], now)).toEqual([]);
    expect(hosts.observe([heartbeat('a', '1'), heartbeat('b', '1')], 1000)).toEqual([
      heartbeat('a', '1'),
    ]);
  });

  test('not when it sends a heartbeat in between', () => {
    const hosts = watch();
    for (const now of [0, 250, 500, 750]) hosts.observe([heartbeat('a', '1')], now);
    expect(hosts.observe([heartbeat('a', '2')], 1000)).toEqual([]);
    expect(hosts.observe([heartbeat('a', '2')], 1250)).toEqual([]);
  });

  test('not for a time without heartbeats in which it was not watched', () => {
    const hosts = watch();
    hosts.observe([heartbeat('a', '1')], 0);
    expect(hosts.observe([heartbeat('a', '1')], 5000)).toEqual([]);
    expect(hosts.observe([heartbeat('a', '1')], 5250)).toEqual([]);
  });

  test('not when its sandboxes were gone in between', () => {
    const hosts = watch();
    for (const now of [0, 250, 500]) hosts.observe([heartbeat('a', '1')], now);
    hosts.observe([], 750);
    expect(hosts.observe([heartbeat('a', '1')], 1000)).toEqual([]);
  });
});
