import { X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { afterAll, describe, expect, it } from '@jest/globals';
import { readNetwork } from './network-config.js';
import { type Environment, EnvironmentReader } from './parse.js';

const read = (env: Environment) => readNetwork(new EnvironmentReader(env));
const [first = '', second = ''] = rootCertificates;

describe('readNetwork', () => {
  const folder = mkdtempSync(join(tmpdir(), 'network-config-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const file = (text: string): string => {
    const path = join(folder, 'company.pem');
    writeFileSync(path, text);
    return path;
  };

  it('is a plain network by default', () => {
    expect(read({})).toEqual({ privateHosts: [] });
  });

  it('reads names with and without ports', () => {
    const text = 'Git.corp.example, nexus.corp.example:8081,*.svc.corp.example,';
    expect(read({ EGRESS_PRIVATE_HOSTS: text }).privateHosts).toEqual([
      { host: { kind: 'exact', name: 'git.corp.example' }, ports: [80, 443, 22] },
      { host: { kind: 'exact', name: 'nexus.corp.example' }, ports: [8081] },
      { host: { kind: 'subdomains', name: 'svc.corp.example' }, ports: [80, 443, 22] },
    ]);
  });

  it.each([
    ['10.1.2.3', 'is an address'],
    ['10.0.0.0/8', 'is an address'],
    ['fd00::/8', 'is an address'],
    ['10.1.2.3:8081', 'an IP address is not a name'],
    ['[fd00::1]:8081', 'an IP address is not a name'],
    ['0x0a.1', 'an IP address is not a name'],
    ['a.example:0', 'no valid port'],
    ['a.example:70000', 'no valid port'],
    ['https://a.example', 'leave out the scheme'],
    ['*', 'host pattern'],
    ['localhost', 'is this machine'],
    ['*.localhost:8080', 'is this machine'],
  ])('refuses to list %s', (text, why) => {
    expect(() => read({ EGRESS_PRIVATE_HOSTS: `git.corp.example,${text}` })).toThrow(
      expect.objectContaining({
        name: 'ConfigError',
        message: expect.stringMatching(new RegExp(`^EGRESS_PRIVATE_HOSTS: .*${why}[^\\n]*$`)),
      }),
    );
  });

  it('reads a proxy and its exceptions', () => {
    const env = {
      EGRESS_PROXY: 'http://user:p%40ss@proxy.corp.example:3128',
      EGRESS_NO_PROXY: '*.corp.example,10.1.2.3,model.example:8080',
    };
    expect(read(env).proxy).toEqual({
      url: env.EGRESS_PROXY,
      resolves: false,
      direct: [
        { host: { kind: 'subdomains', name: 'corp.example' } },
        { host: '10.1.2.3' },
        { host: { kind: 'exact', name: 'model.example' }, port: 8080 },
      ],
    });
    expect(read({ ...env, EGRESS_PROXY_DNS: 'on' }).proxy).toMatchObject({ resolves: true });
  });

  it.each([
    [{ EGRESS_PROXY: 'socks5://user:secret@proxy' }, 'EGRESS_PROXY: must be a URL'],
    [{ EGRESS_PROXY: 'http://user:secret@proxy/path' }, 'EGRESS_PROXY: must have no path'],
    [{ EGRESS_PROXY: 'http://user:100%secret@proxy' }, 'EGRESS_PROXY: has a "%"'],
    [{ EGRESS_NO_PROXY: 'a.example' }, 'EGRESS_NO_PROXY: needs EGRESS_PROXY'],
    [{ EGRESS_PROXY_DNS: 'on' }, 'EGRESS_PROXY_DNS: needs EGRESS_PROXY'],
  ])('refuses %j without repeating a password', (env: Environment, message) => {
    expect(() => read(env)).toThrow(message);
    expect(() => read(env)).not.toThrow('secret');
  });

  it("uses the host's own proxy and its exceptions unless EGRESS_PROXY is set", () => {
    const host = {
      HTTPS_PROXY: 'http://user:secret@proxy.corp.example:3128',
      NO_PROXY: 'localhost, .Corp.example,model.example:8080 10.1.2.3,[fd00::1]:443,10.0.0.0/8,<x>',
    };
    expect(read(host).proxy).toEqual({
      url: host.HTTPS_PROXY,
      setting: 'HTTPS_PROXY',
      resolves: false,
      direct: [
        ...['localhost', 'corp.example'].flatMap((name) => [
          { host: { kind: 'exact', name } },
          { host: { kind: 'subdomains', name } },
        ]),
        { host: { kind: 'exact', name: 'model.example' }, port: 8080 },
        { host: { kind: 'subdomains', name: 'model.example' }, port: 8080 },
        { host: '10.1.2.3' },
        { host: 'fd00::1', port: 443 },
        { host: '10.0.0.0/8' },
      ],
    });
    const own = 'http://own.example:3128';
    expect(read({ ...host, EGRESS_PROXY: own }).proxy).toEqual({
      url: own,
      resolves: false,
      direct: [],
    });
    expect(read({ ...host, EGRESS_NO_PROXY: '10.1.2.3' }).proxy).toMatchObject({
      url: host.HTTPS_PROXY,
      direct: [{ host: '10.1.2.3' }],
    });
    expect(read({ ...host, EGRESS_PROXY: 'off' }).proxy).toBeUndefined();
    expect(read({ ...host, NO_PROXY: '*' }).proxy).toBeUndefined();
    expect(read({ https_proxy: 'proxy:3128', no_proxy: 'a.example' }).proxy).toMatchObject({
      url: 'http://proxy:3128',
      setting: 'https_proxy',
      direct: [{ host: { name: 'a.example' } }, { host: { kind: 'subdomains' } }],
    });
  });

  it.each([
    [{ HTTPS_PROXY: 'socks5://user:secret@proxy' }, 'HTTPS_PROXY: must be the URL of an HTTP'],
    [{ HTTPS_PROXY: 'http://user:secret@proxy/path' }, 'HTTPS_PROXY: must have no path'],
  ])("refuses the host's %j without repeating a password", (env: Environment, message) => {
    expect(() => read(env)).toThrow(message);
    expect(() => read(env)).not.toThrow('secret');
  });

  it('reads certificates, and nothing else that the file has', () => {
    const path = file(`# a comment\n${first}\nmore text\r\n${second.replaceAll('\n', '\r\n')}`);
    expect(read({ SANDBOX_CA_FILE: path }).certificates).toEqual(
      [first, second].map((pem) => new X509Certificate(pem).toString()),
    );
  });

  it.each([
    ['', 'has no certificate in PEM format'],
    [first.replace('MII', 'AAA'), 'certificate 1 of .* is not valid'],
    [`${first}\n-----BEGIN PRIVATE KEY-----\n`, 'has a private key'],
  ])('refuses a file with %#', (text, why) => {
    const path = file(text);
    expect(() => read({ SANDBOX_CA_FILE: path })).toThrow(new RegExp(`^SANDBOX_CA_FILE: .*${why}`));
  });

  it('refuses a file that it cannot read', () => {
    const path = join(folder, 'missing.pem');
    expect(() => read({ SANDBOX_CA_FILE: path })).toThrow(
      `SANDBOX_CA_FILE: cannot read ${path} (ENOENT)`,
    );
    expect(() => read({ SANDBOX_CA_FILE: folder })).toThrow(/ is not a regular file$/);
  });
});
