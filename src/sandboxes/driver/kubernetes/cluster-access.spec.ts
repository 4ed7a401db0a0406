import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { clusterAccess } from './cluster-access.js';

describe('a kubeconfig', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kubeconfig-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  async function access(user: string, cluster = '{server: "https://api.example:6443/"}') {
    const path = join(folder, 'config');
    await writeFile(
      path,
      `apiVersion: v1
kind: Config
current-context: two
contexts:
- {name: one, context: {cluster: other, user: other}}
- {name: two, context: {cluster: mine, user: me, namespace: boxes}}
clusters: [{name: mine, cluster: ${cluster}}]
users: [{name: me, user: ${user}}]
`,
    );
    return clusterAccess(path);
  }

  it('names the cluster of its current context', async () => {
    const ca = Buffer.from('a certificate').toString('base64');
    const cluster = `{server: "https://api.example:6443/", certificate-authority-data: ${ca}, tls-server-name: other.example}`;
    expect(await access('{token: secret}', cluster)).toMatchObject({
      server: 'https://api.example:6443',
      ca: Buffer.from('a certificate'),
      serverName: 'other.example',
      isInsecure: false,
      namespace: 'boxes',
    });
  });

  it('has a token, a file with one, or a certificate, relative to itself', async () => {
    expect(await (await access('{token: secret}')).credentials()).toMatchObject({
      token: 'secret',
    });
    await writeFile(join(folder, 'token'), 'from a file\n');
    expect(await (await access('{tokenFile: token}')).credentials()).toEqual({
      token: 'from a file',
    });
    await writeFile(join(folder, 'me.crt'), 'certificate');
    const key = Buffer.from('key').toString('base64');
    const user = `{client-certificate: me.crt, client-key-data: ${key}}`;
    expect(await (await access(user)).credentials()).toEqual({
      cert: Buffer.from('certificate'),
      key: Buffer.from('key'),
    });
  });

  it('may name a program that gives credentials, which are kept until they expire', async () => {
    const script = `echo '{"status":{"token":"'$WORD-$$'","expirationTimestamp":"2100-01-01T00:00:00Z"}}'`;
    const exec = JSON.stringify({
      exec: {
        apiVersion: 'client.authentication.k8s.io/v1',
        command: '/bin/sh',
        args: ['-c', script],
        env: [{ name: 'WORD', value: 'given' }],
      },
    });
    const { credentials } = await access(exec);
    const first = await credentials();
    expect(first.token).toMatch(/^given-\d+$/);
    expect(await credentials()).toEqual(first);
  });

  it.each([
    ['/no/such/config', 'cannot read /no/such/config for KUBECONFIG (ENOENT)'],
    [undefined, 'set KUBECONFIG: this process does not run in a pod of a cluster'],
  ])('is missed at %s', (path, message) => {
    expect(() => clusterAccess(path)).toThrow(`Kubernetes cannot be used: ${message}`);
  });
});
