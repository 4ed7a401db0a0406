import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { clusterAccess } from '../../src/sandboxes/driver/kubernetes/cluster-access.js';
import type { SandboxDriver } from '../../src/sandboxes/driver/sandbox-driver.js';
import { bash, outcomeOf } from '../contracts/sandbox-driver.contract.js';
import { NetworkGatewayProcess } from '../integration/gateway/network-gateway.js';
import { describeWith } from '../support/requirements.js';
import { installKubernetes, type KubernetesInstallation } from './kubernetes-installations.js';

const signal = new AbortController().signal;
const OPEN = { mode: 'unrestricted', allowedHosts: [] } as const;

/** The address of this machine that has a route to the API server's. */
function ownAddress(server: string): string {
  const prefix = new URL(server).hostname.split('.').slice(0, 3).join('.');
  const addresses = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
  const near = addresses.find(({ address }) => address.startsWith(`${prefix}.`));
  const other = addresses.find(({ family, internal }) => family === 'IPv4' && !internal);
  return (near ?? other)?.address ?? '127.0.0.1';
}

/** Attacks from inside a pod, on a cluster that enforces policies and Pod Security "restricted". */
describeWith(['a Kubernetes cluster'], 'an agent in a sandbox (kubernetes)', () => {
  let installation: KubernetesInstallation;
  let driver: SandboxDriver;
  let gateway: NetworkGatewayProcess;
  let neighbour: Server;
  let host: string;
  const sandboxId = randomUUID();

  beforeAll(async () => {
    const env = { HOST: '0.0.0.0', SANDBOX_DRIVER: undefined, EGRESS_PROXY: 'off' };
    gateway = await NetworkGatewayProcess.start(env);
    host = ownAddress(clusterAccess(process.env['KUBECONFIG']).server);
    const remote = gateway.remote(undefined, host);
    const url = `http://${host}:${gateway.port}`;
    installation = await installKubernetes({ gateway: { url, remote } });
    ({ driver } = installation);
    neighbour = createServer((socket) => socket.end('reached')).listen(0, '0.0.0.0');
    await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
  }, 120_000);

  afterAll(async () => {
    await driver.destroy({ sandboxId, signal });
    await driver.close();
    await installation.dispose();
    neighbour.close();
    await gateway.stop();
  }, 120_000);

  async function probe(script: string): Promise<string> {
    const launch = { sandboxId, ...bash(script) };
    await driver.launch(launch);
    const { stdout, stderr } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    return stdout + stderr;
  }

  it('is a user without capabilities, who gets none', async () => {
    const output = await probe(`id -u; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status
      setpriv --reuid=0 id -u 2>&1; su -c id 2>&1; unshare -U id 2>&1; true`);
    expect(output).toMatch(/^1000\n(Cap\w+:\s0{16}\n){5}NoNewPrivs:\s1\nSeccomp:\s2\n/);
    expect(output).not.toMatch(/^0$/m);
    expect(output).not.toContain('uid=0');
  });

  it('sees nothing of the supervisor, and no credentials', async () => {
    const output = await probe(`
      ls -A /volume /run/agent-session /var/run/secrets
      ps -eo args; env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'
      grep -c . /proc/self/mountinfo >/dev/null; cat /proc/self/mountinfo`);
    for (const secret of ['daemon.js', 'identity', 'serviceaccount', 'KUBERNETES_', '/volume/']) {
      expect(output).not.toContain(secret);
    }
  });

  it('neither reads nor changes the memory of the shim', async () => {
    const output = await probe(`
      for pid in $(ls /proc | grep '^[0-9]'); do
        case $(tr '\\0' ' ' < /proc/$pid/cmdline) in /agent-session/*) ;; *) continue ;; esac
        echo "$pid"
        { : < /proc/$pid/mem; } 2>/dev/null && echo "READ $pid"
        { : >> /proc/$pid/mem; } 2>/dev/null && echo "WROTE $pid"
        cat /proc/$pid/environ /proc/$pid/maps 2>/dev/null | head -c 10
        ls /proc/$pid/fd/ 2>/dev/null
      done 2>/dev/null; kill -KILL 1; echo "alive"`);
    // The first process of the container, the shim, and the parent of this script.
    expect(output.match(/^\d+$/gm)?.length).toBeGreaterThanOrEqual(3);
    expect(output.replaceAll(/^\d+\n/gm, '')).toBe('alive\n');
  });

  it('writes nowhere but in its own folders', async () => {
    const output = await probe(`
      for folder in / /usr /usr/local/bin /etc /home /opt /root /var /bin /run /agent-session /agent-session/dist; do
        touch $folder/probe 2>/dev/null && echo "WROTE $folder"
      done; chmod 777 /agent-session/lib/loader 2>/dev/null && echo CHANGED
      touch ~/a /workspace/a /tmp/a /var/tmp/a /dev/shm/a && echo fine`);
    expect(output).toBe('fine\n');
  });

  it('reaches neither the API server, nor nodes, nor this machine, nor a name server', async () => {
    const { hostname, port } = new URL(installation.api.access.server);
    const { port: neighbourPort } = neighbour.address() as { port: number };
    const attempts = [
      `${hostname}/${port}`,
      `${hostname}/10250`,
      `${host}/${neighbourPort}`,
      '10.213.128.1/443',
      '169.254.169.254/80',
      '1.1.1.1/443',
    ];
    const output = await probe(`
      for target in ${attempts.join(' ')}; do
        { timeout 1 bash -c ": < /dev/tcp/$target" 2>/dev/null && echo "REACHED $target"; } &
      done; wait
      timeout 1 bash -c 'echo x > /dev/udp/10.213.128.10/53; read -t 1 < /dev/udp/10.213.128.10/53 && echo ANSWER' 2>/dev/null
      echo done`);
    expect(output).toBe('done\n');
  });

  it('reaches the gateway, which says that a grant is needed, and nothing else there', async () => {
    const ask = 'curl -s -o /dev/null -w "%{http_code}\\n" --max-time 20 -X POST';
    expect(await probe(`${ask} http://127.0.0.1/anthropic/v1/messages -d '{}'`)).toBe('401\n');
    // Without the secret of the sandbox, the gateway does not serve the pod either.
    const direct = `curl -s --max-time 5 -H 'Connection: Upgrade' -H 'Upgrade: agent-session-gateway' http://${host}:${gateway.port}/connect -H 'Authorization: Bearer wrong' -o /dev/null -w '%{http_code}\\n'`;
    expect(await probe(direct)).toBe('401\n');
  });

  it('gets other names once the policy is changed, and not before', async () => {
    const look = 'getent hosts allowed.example >/dev/null && echo found || echo refused';
    const limited = (allowedHosts: string[]) =>
      driver.restrictNetwork({ sandboxId, network: { mode: 'limited', allowedHosts }, signal });
    await limited([]);
    expect(await probe(look)).toBe('refused\n');
    await limited(['allowed.example']);
    expect(await probe(look)).toBe('found\n');
  });
});
