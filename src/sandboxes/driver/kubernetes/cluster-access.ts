import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { parse } from 'yaml';
import { SandboxError } from '../../../supervisor/sandbox-error.js';

/** Where Kubernetes puts the credentials of a pod. */
const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Tokens in files are replaced by Kubernetes long before they expire. */
const TOKEN_MS = 60_000;
/** Credentials of a helper program are renewed so long before they expire. */
const RENEW_MS = 60_000;

/** What each request is sent with. */
export interface Credentials {
  token?: string | undefined;
  cert?: Buffer | string | undefined;
  key?: Buffer | string | undefined;
}

/** How the API server is reached. */
export interface ClusterAccess {
  /** Without a trailing slash. */
  server: string;
  ca?: Buffer | undefined;
  isInsecure: boolean;
  /** The name in the server's certificate, if it is not the one in the address. */
  serverName?: string | undefined;
  /** The namespace of the credentials. */
  namespace: string;
  credentials: () => Promise<Credentials>;
}

/** Parts of a kubeconfig that are used. Names are those of the format. */
interface KubeConfig {
  'current-context'?: string;
  contexts?: { name: string; context: { cluster: string; user: string; namespace?: string } }[];
  clusters?: { name: string; cluster: Record<string, unknown> }[];
  users?: { name: string; user: Record<string, unknown> }[];
}

interface ExecConfig {
  command: string;
  args?: string[] | null;
  env?: { name: string; value: string }[] | null;
  apiVersion?: string;
}

/**
 * The access to the cluster.
 * @param kubeconfig the path of a file; default: the credentials of the pod that this process runs in
 * @throws SandboxError `unavailable` with what is missing
 */
export function clusterAccess(kubeconfig: string | undefined): ClusterAccess {
  return kubeconfig === undefined ? fromPod(process.env) : fromFile(resolve(kubeconfig));
}

function fromPod(env: NodeJS.ProcessEnv): ClusterAccess {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443' } = env;
  if (host === undefined) {
    throw unusable('set KUBECONFIG: this process does not run in a pod of a cluster');
  }
  const read = (name: string): Buffer => readNamed(`${SERVICE_ACCOUNT}/${name}`, 'service account');
  return {
    server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    ca: read('ca.crt'),
    isInsecure: false,
    namespace: read('namespace').toString('utf8').trim(),
    credentials: tokenFile(`${SERVICE_ACCOUNT}/token`),
  };
}

function fromFile(path: string): ClusterAccess {
  const config = parseConfig(path);
  const current = config['current-context'];
  const context = config.contexts?.find(({ name }) => name === current)?.context;
  if (context === undefined) throw unusable(`${path} has no current context`);
  const cluster = config.clusters?.find(({ name }) => name === context.cluster)?.cluster;
  const user = config.users?.find(({ name }) => name === context.user)?.user ?? {};
  const server = cluster?.['server'];
  if (typeof server !== 'string') throw unusable(`${path} has no cluster ${context.cluster}`);
  const folder = dirname(path);
  const bytes = (from: Record<string, unknown>, name: string): Buffer | undefined => {
    const data = from[`${name}-data`];
    if (typeof data === 'string') return Buffer.from(data, 'base64');
    const file = from[name];
    return typeof file === 'string' ? readNamed(resolve(folder, file), name) : undefined;
  };
  const serverName = cluster?.['tls-server-name'];
  return {
    server: server.replace(/\/+$/, ''),
    ca: bytes(cluster ?? {}, 'certificate-authority'),
    isInsecure: cluster?.['insecure-skip-tls-verify'] === true,
    ...(typeof serverName === 'string' && { serverName }),
    namespace: context.namespace ?? 'default',
    credentials: credentialsOf(user, folder, (name) => bytes(user, name)),
  };
}

function parseConfig(path: string): KubeConfig {
  const content = readNamed(path, 'KUBECONFIG').toString('utf8');
  try {
    const config: unknown = parse(content);
    if (typeof config === 'object' && config !== null) return config;
  } catch {
    // Reported below.
  }
  throw unusable(`${path} is no kubeconfig`);
}

function credentialsOf(
  user: Record<string, unknown>,
  folder: string,
  bytes: (name: string) => Buffer | undefined,
): () => Promise<Credentials> {
  const { token, tokenFile: file, exec } = user;
  if (typeof exec === 'object' && exec !== null) return helper(exec as ExecConfig, folder);
  if (typeof file === 'string') return tokenFile(resolve(folder, file));
  const found: Credentials = {
    cert: bytes('client-certificate'),
    key: bytes('client-key'),
    ...(typeof token === 'string' && { token }),
  };
  return async () => found;
}

function tokenFile(path: string): () => Promise<Credentials> {
  let known: { at: number; token: string } | undefined;
  return async () => {
    if (known === undefined || Date.now() - known.at > TOKEN_MS) {
      known = { at: Date.now(), token: (await readFile(path, 'utf8')).trim() };
    }
    return { token: known.token };
  };
}

/** Credentials of the program that a cloud provider gives, in the format ExecCredential. */
function helper(exec: ExecConfig, folder: string): () => Promise<Credentials> {
  let known: { until: number; credentials: Credentials } | undefined;
  return async () => {
    if (known !== undefined && Date.now() < known.until) return known.credentials;
    const env = Object.fromEntries((exec.env ?? []).map(({ name, value }) => [name, value]));
    const info = {
      apiVersion: exec.apiVersion,
      kind: 'ExecCredential',
      spec: { interactive: false },
    };
    const child = spawn(exec.command, exec.args ?? [], {
      cwd: folder,
      env: { ...process.env, ...env, KUBERNETES_EXEC_INFO: JSON.stringify(info) },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const failed = new Promise<never>((_resolve, reject) => void child.once('error', reject));
    const output = await Promise.race([text(child.stdout), failed]).catch((error: unknown) => {
      throw unusable(`${exec.command} of the kubeconfig does not start: ${String(error)}`);
    });
    known = credentialOf(output, exec.command);
    return known.credentials;
  };
}

function credentialOf(
  output: string,
  command: string,
): { until: number; credentials: Credentials } {
  interface ExecCredential {
    status?: Record<
      'token' | 'clientCertificateData' | 'clientKeyData' | 'expirationTimestamp',
      string | undefined
    >;
  }
  let status: ExecCredential['status'];
  try {
    ({ status } = JSON.parse(output) as ExecCredential);
  } catch {
    // Reported below.
  }
  if (status === undefined) throw unusable(`${command} of the kubeconfig gives no credentials`);
  const { token, clientCertificateData: cert, clientKeyData: key, expirationTimestamp } = status;
  const expires = expirationTimestamp === undefined ? Infinity : Date.parse(expirationTimestamp);
  return { until: expires - RENEW_MS, credentials: { token, cert, key } };
}

function readNamed(path: string, what: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    throw unusable(`cannot read ${path} for ${what} (${code})`);
  }
}

function unusable(message: string): SandboxError {
  return new SandboxError('unavailable', `Kubernetes cannot be used: ${message}`);
}
