import { describe, expect, it } from '@jest/globals';
import { hostAddresses, refusalOfAddress } from './address-policy.js';

describe('refusalOfAddress', () => {
  it.each([
    '1.1.1.1',
    '8.8.8.8',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '192.0.1.1',
    '192.167.255.255',
    '192.169.0.0',
    '198.17.255.255',
    '198.20.0.0',
    '223.255.255.255',
    // Documentation networks are public as far as this is concerned.
    '192.0.2.1',
    '198.51.100.7',
    '203.0.113.9',
    '2606:4700:4700::1111',
    '2a00:1450:4001:80b::200e',
    '3ffe::1',
    '::ffff:8.8.8.8',
    '64:ff9b::8.8.8.8',
    '2002:808:808::1',
  ])('lets %s through', (address) => {
    expect(refusalOfAddress(address)).toBeUndefined();
  });

  it.each([
    ['0.0.0.0', 'unspecified'],
    ['0.255.255.255', 'unspecified'],
    ['10.0.0.1', 'private'],
    ['100.64.0.1', 'carrier-grade NAT'],
    ['100.100.100.200', 'carrier-grade NAT'],
    ['127.0.0.1', 'loopback'],
    ['127.64.0.1', 'loopback'],
    ['127.255.255.255', 'loopback'],
    ['168.63.129.16', 'cloud metadata'],
    ['169.254.169.254', 'link-local'],
    ['172.16.0.1', 'private'],
    ['172.31.255.255', 'private'],
    ['192.0.0.192', 'reserved'],
    ['192.88.99.1', 'reserved'],
    ['192.168.1.1', 'private'],
    ['198.18.0.1', 'reserved'],
    ['198.19.255.255', 'reserved'],
    ['224.0.0.1', 'multicast'],
    ['239.255.255.255', 'multicast'],
    ['240.0.0.1', 'reserved'],
    ['255.255.255.255', 'broadcast'],
    ['::', 'unspecified'],
    ['::1', 'loopback'],
    ['0:0:0:0:0:0:0:1', 'loopback'],
    ['::127.0.0.1', 'reserved'],
    ['::ffff:10.0.0.1', 'private'],
    ['::ffff:7f00:1', 'loopback'],
    ['::ffff:169.254.169.254', 'link-local'],
    ['0:0:0:0:0:ffff:192.168.0.1', 'private'],
    ['64:ff9b::10.0.0.1', 'private'],
    ['64:ff9b::a9fe:a9fe', 'link-local'],
    ['64:ff9b:1::808:808', 'reserved'],
    ['2002:a00:1::', 'private'],
    ['2002:7f00:1::1', 'loopback'],
    ['100::1', 'reserved'],
    ['2001::1', 'reserved'],
    ['2001:db8::1', 'reserved'],
    ['3fff::1', 'reserved'],
    ['4000::1', 'reserved'],
    ['fc00::1', 'private'],
    ['fd00:ec2::254', 'private'],
    ['fdff:ffff::1', 'private'],
    ['fe80::1', 'link-local'],
    ['fe80::1%eth0', 'not an address'],
    ['fec0::1', 'link-local'],
    ['ff02::1', 'multicast'],
    ['', 'not an address'],
    ['example.com', 'not an address'],
    ['0x7f.1', 'not an address'],
    ['127.1', 'not an address'],
    ['2130706433', 'not an address'],
    ['8.8.8.8%eth0', 'not an address'],
  ])('refuses %s as %s', (address, why) => {
    expect(refusalOfAddress(address)).toBe(why);
  });

  it('refuses the machine’s own public addresses, in every notation', () => {
    const own = ['203.0.113.5', '2606:4700::5'];
    expect(refusalOfAddress('203.0.113.5', own)).toBe('own host');
    expect(refusalOfAddress('::ffff:203.0.113.5', own)).toBe('own host');
    expect(refusalOfAddress('2606:4700:0:0:0:0:0:5', own)).toBe('own host');
    expect(refusalOfAddress('203.0.113.6', own)).toBeUndefined();
    expect(refusalOfAddress('2606:4700::6', own)).toBeUndefined();
  });

  it.each([
    '10.0.0.1',
    '172.16.0.1',
    '192.168.1.1',
    '100.64.0.1',
    'fd12::1',
    '::ffff:10.0.0.1',
    '8.8.8.8',
  ])('lets listed names have %s', (address) => {
    expect(refusalOfAddress(address, [], 'exact')).toBeUndefined();
    expect(refusalOfAddress(address, [], 'subdomains')).toBeUndefined();
  });

  it.each([
    ['127.0.0.1', 'loopback'],
    ['::1', 'loopback'],
    ['::ffff:127.0.0.1', 'loopback'],
    ['169.254.169.254', 'link-local'],
    ['fe80::1', 'link-local'],
    ['0.0.0.0', 'unspecified'],
    ['168.63.129.16', 'cloud metadata'],
    ['100.100.100.200', 'cloud metadata'],
    ['::ffff:100.100.100.200', 'cloud metadata'],
    ['fd00:ec2::254', 'cloud metadata'],
    ['FD20:CE:0:0::254', 'cloud metadata'],
    ['192.0.0.192', 'reserved'],
    ['224.0.0.1', 'multicast'],
    ['255.255.255.255', 'broadcast'],
  ])('refuses %s as %s even for listed names', (address, why) => {
    expect(refusalOfAddress(address, [], 'exact')).toBe(why);
  });

  it('lets only names that are listed on their own have an address of this machine', () => {
    const own = ['10.0.0.5', 'fd12::5', '203.0.113.5', '127.0.0.1'];
    for (const address of ['10.0.0.5', 'fd12:0::5', '203.0.113.5']) {
      expect(refusalOfAddress(address, own, 'exact')).toBeUndefined();
      expect(refusalOfAddress(address, own, 'subdomains')).toBe('own host');
    }
    expect(refusalOfAddress('127.0.0.1', own, 'exact')).toBe('loopback');
  });

  it('knows the addresses of the interfaces', () => {
    expect(hostAddresses()).toContain('127.0.0.1');
  });
});
