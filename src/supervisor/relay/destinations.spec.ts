import { describe, expect, it } from '@jest/globals';
import { Destinations } from './destinations.js';
import type { PrivateHost } from '../../common/egress-network.js';
import type { Gateway } from './gateways.js';
import { COMMON_LISTENERS } from './listener-plan.js';

const limited = (allowedHosts: string[], gateways: Gateway[] = []) =>
  new Destinations({ mode: 'limited', allowedHosts }, gateways);
const unrestricted = (gateways: Gateway[] = []) =>
  new Destinations({ mode: 'unrestricted', allowedHosts: [] }, gateways);

const GIT: PrivateHost = { host: { kind: 'exact', name: 'git.corp.example' }, ports: [443, 8443] };
const BELOW: PrivateHost = {
  host: { kind: 'subdomains', name: 'svc.corp.example' },
  ports: [9000],
};
const ANY = '0.0.0.0';

function addressOf(destinations: Destinations, name: string): string {
  const verdict = destinations.judgeName(name);
  if ('refused' in verdict) throw new Error(verdict.refused);
  return verdict.address;
}

describe('Destinations', () => {
  it('gives each allowed name one stable address and finds the name again', () => {
    const destinations = limited(['a.example', '*.b.example']);
    const address = addressOf(destinations, 'a.example');
    expect(address).toMatch(/^127\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\./);
    expect(addressOf(destinations, 'A.Example.')).toBe(address);
    expect(addressOf(destinations, 'x.b.example')).not.toBe(address);
    expect(destinations.judgeConnection(address, 443)).toEqual({
      destination: { host: 'a.example', port: 443, isGateway: false, claimedName: 'a.example' },
    });
  });

  it('refuses other names, and addresses that no name was given', () => {
    const destinations = limited(['a.example']);
    expect(destinations.judgeName('b.example')).toEqual({ refused: 'not allowed' });
    expect(destinations.judgeName('10.0.0.1')).toEqual({ refused: 'not a host name' });
    for (const address of ['127.0.0.1', '127.64.0.1', '127.99.1.1']) {
      expect(destinations.judgeConnection(address, 443)).toEqual({
        refused: { name: address, why: 'an address without a name' },
      });
    }
  });

  it('reaches only those gateways that the policy names, under their own names', () => {
    const gateways = [
      { host: '10.1.1.1', port: 443 },
      { host: '10.2.2.2', port: 443 },
      { host: '127.0.0.1', port: 9000 },
    ];
    const policy = { mode: 'limited', allowedHosts: [], gateways: ['10.2.2.2:443'] } as const;
    const destinations = new Destinations(policy, gateways);
    expect(destinations.judgeName('gateway-1.internal')).toEqual({ refused: 'not allowed' });
    expect(
      destinations.judgeConnection(addressOf(destinations, 'gateway-2.internal'), 443),
    ).toMatchObject({ destination: { host: '10.2.2.2', isGateway: true } });
    expect(destinations.judgeConnection('127.0.0.1', 9000)).toHaveProperty('refused');
    expect(destinations.listeners()).not.toContainEqual(expect.objectContaining({ port: 9000 }));
  });

  it('allows every dotted name without a claim when unrestricted', () => {
    const destinations = unrestricted();
    const address = addressOf(destinations, 'any.example');
    expect(destinations.judgeConnection(address, 22)).toEqual({
      destination: { host: 'any.example', port: 22, isGateway: false },
    });
    expect(destinations.judgeName('localhost')).toEqual({ refused: 'not allowed' });
    expect(destinations.judgeName('intranet')).toEqual({ refused: 'not allowed' });
  });

  it('reaches a named gateway at its port only', () => {
    const destinations = limited([], [{ host: 'Gateway.Example', port: 8443 }]);
    const address = addressOf(destinations, 'gateway.example');
    expect(destinations.judgeConnection(address, 8443)).toMatchObject({
      destination: { host: 'Gateway.Example', port: 8443, isGateway: true },
    });
    expect(destinations.judgeConnection(address, 443)).toMatchObject({
      refused: { why: 'not allowed' },
    });
    expect(destinations.listeners()).toContainEqual({ role: 'relay', address, port: 8443 });
  });

  it('vets a gateway’s name like any other at other ports', () => {
    const destinations = unrestricted([{ host: 'gateway.example', port: 8443 }]);
    const address = addressOf(destinations, 'gateway.example');
    expect(destinations.judgeConnection(address, 80)).toMatchObject({
      destination: { isGateway: false },
    });
  });

  it('reaches a loopback gateway at exactly its address and port', () => {
    const destinations = limited(
      [],
      [
        { host: '127.0.0.1', port: 4000 },
        { host: '127.0.0.2', port: 443 },
      ],
    );
    expect(destinations.judgeConnection('127.0.0.1', 4000)).toEqual({
      destination: { host: '127.0.0.1', port: 4000, isGateway: true },
    });
    expect(destinations.judgeConnection('127.0.0.2', 443)).toMatchObject({
      destination: { isGateway: true },
    });
    expect(destinations.judgeConnection('127.0.0.1', 443)).toHaveProperty('refused');
    expect(destinations.judgeConnection('127.0.0.3', 4000)).toHaveProperty('refused');
    // Port 443 is taken by the wildcard listener.
    expect(destinations.listeners().slice(5)).toEqual([
      { role: 'relay', address: '127.0.0.1', port: 4000 },
    ]);
  });

  it('reaches localhost at both loopback addresses', () => {
    const destinations = limited([], [{ host: 'localhost', port: 4000 }]);
    expect(destinations.listeners().slice(5)).toEqual([
      { role: 'relay', address: '127.0.0.1', port: 4000 },
      { role: 'relay', address: '::1', port: 4000, optional: true },
    ]);
    expect(destinations.judgeConnection('::1', 4000)).toMatchObject({
      destination: { host: 'localhost' },
    });
  });

  it('gives other literals a name, without a claim to check', () => {
    const destinations = limited(
      [],
      [
        { host: 'g.example', port: 1 },
        { host: '10.1.2.3', port: 443 },
      ],
    );
    const address = addressOf(destinations, 'gateway-2.internal');
    expect(destinations.judgeConnection(address, 443)).toEqual({
      destination: { host: '10.1.2.3', port: 443, isGateway: true },
    });
    expect(destinations.judgeConnection(address, 80)).toHaveProperty('refused');
    expect(destinations.judgeName('gateway-1.internal')).toHaveProperty('refused');
  });

  it('reaches private hosts at their ports, and other names only at the usual ones', () => {
    const policy = { mode: 'unrestricted', allowedHosts: [] } as const;
    const destinations = new Destinations(policy, [], [GIT, BELOW]);
    const [git, app, other] = ['git.corp.example', 'app.svc.corp.example', 'other.example'].map(
      (name) => addressOf(destinations, name),
    );
    const reaches = (address = '', port: number): boolean =>
      'destination' in destinations.judgeConnection(address, port);
    expect([22, 443, 8443, 9000].map((port) => reaches(git, port))).toEqual([
      true,
      true,
      true,
      false,
    ]);
    expect([443, 8443, 9000].map((port) => reaches(app, port))).toEqual([true, false, true]);
    expect([443, 8443, 9000].map((port) => reaches(other, port))).toEqual([true, false, false]);
    // The gateway decides about the address.
    expect(destinations.judgeConnection(git ?? '', 8443)).toEqual({
      destination: { host: 'git.corp.example', port: 8443, isGateway: false },
    });
    expect(destinations.listeners().slice(COMMON_LISTENERS.length)).toEqual([
      { role: 'relay', address: git, port: 8443 },
      { role: 'relay', address: ANY, port: 9000 },
    ]);
  });

  it('reaches of private hosts only those that the policy allows', () => {
    const made = (allowedHosts: string[]) =>
      new Destinations({ mode: 'limited', allowedHosts }, [], [GIT, BELOW]);
    const ports = (destinations: Destinations): number[] =>
      destinations
        .listeners()
        .slice(COMMON_LISTENERS.length)
        .map(({ port }) => port);
    expect(ports(made([]))).toEqual([]);
    expect(ports(made(['*.corp.example']))).toEqual([8443, 9000]);
    expect(ports(made(['git.corp.example', 'a.svc.corp.example']))).toEqual([8443, 9000]);
    expect(ports(made(['corp.example', '*.git.corp.example']))).toEqual([]);
    const one = made(['a.svc.corp.example']);
    expect(ports(one)).toEqual([9000]);
    expect(one.judgeName('b.svc.corp.example')).toEqual({ refused: 'not allowed' });
    expect(one.judgeName('git.corp.example')).toEqual({ refused: 'not allowed' });
  });

  it('knows a private host of one label', () => {
    const policy = { mode: 'unrestricted', allowedHosts: [] } as const;
    const host: PrivateHost = { host: { kind: 'exact', name: 'git' }, ports: [443] };
    const destinations = new Destinations(policy, [], [host]);
    expect(destinations.judgeName('git')).toHaveProperty('address');
    expect(destinations.judgeName('intranet')).toEqual({ refused: 'not allowed' });
  });

  it('listens once where a pattern and a gateway have the same port', () => {
    const policy = { mode: 'unrestricted', allowedHosts: [] } as const;
    const gateways = [
      { host: '127.0.0.1', port: 9000 },
      { host: '::1', port: 9000 },
    ];
    const destinations = new Destinations(policy, gateways, [BELOW, { ...GIT, ports: [9000] }]);
    expect(destinations.listeners().slice(COMMON_LISTENERS.length)).toEqual([
      { role: 'relay', address: '::1', port: 9000, optional: true },
      { role: 'relay', address: ANY, port: 9000 },
    ]);
    expect(destinations.judgeConnection('127.0.0.1', 9000)).toMatchObject({
      destination: { isGateway: true },
    });
  });

  it('refuses a policy that it cannot apply', () => {
    expect(() => limited(['a.example', 'http://b'])).toThrow('leave out the scheme');
    expect(() => limited([], [{ host: 'a b', port: 1 }])).toThrow(RangeError);
  });
});
