import { confine, confineProgram } from '../../../supervisor/confine.js';
import { NAMESERVER } from '../../../supervisor/relay/listener-plan.js';
import { HOME, HOST_NAME, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import type { ShimSetup } from '../../../supervisor/shim/shim-calls.js';
import { SUPERVISOR_NODE_FLAGS } from '../../../supervisor/start.js';
import { type PodSetup, WORKER_SOCKET } from './inside/arrangement.js';
import type { ForbiddenAddress, Preparation } from './inside/preparation.js';
import type { KubernetesOptions, ObjectNames } from './options.js';
import { USERS } from './options.js';

/** Where the programs are in both containers, read-only in the agent's. */
export const PROGRAMS = '/agent-session';
/** The agent's programs from npm. */
export const AGENT_PROGRAMS = '/opt/agent-programs';
/** The program that confines agents, as the agent's container sees it. */
export const CONFINE = confineProgram(PROGRAMS);
/** In memory, and writable by the agent. */
export const SHARED_MEMORY = '/dev/shm';
export const SUPERVISOR = 'supervisor';
export const AGENT = 'agent';
export const PREPARE = 'prepare';

const VOLUME = '/volume';
export const SOCKETS = '/run/agent-session';
const INSIDE = 'dist/src/sandboxes/driver/kubernetes/inside';
const MiB = 1024 * 1024;
/** Memory for the shim, which is in the agent's container. */
const SHIM_MEMORY = 192 * MiB;
/** Memory for the supervisor, one process for each launch, and the relay. */
const SUPERVISOR_MEMORY = 768 * MiB;
/** Room on the volume for the output of launches, in addition to the agent's disk. */
const SPOOL_ROOM = 512 * MiB;
/** A sandbox that waits for its first session may do so for long. */
const FIRST_LAUNCH_SECONDS = 6 * 3600;
const PIPE_PATIENCE_MS = 20_000;
/** Enough for an exit record. The spool is on the volume. */
const GRACE_SECONDS = 2;

/** The command that connects its standard input and output to the supervisor of a pod. */
export const CONNECT = [
  'node',
  'dist/src/supervisor/pipe.js',
  `${SOCKETS}/${WORKER_SOCKET}`,
  String(PIPE_PATIENCE_MS),
] as const;

const NO_RIGHTS = {
  allowPrivilegeEscalation: false,
  privileged: false,
  capabilities: { drop: ['ALL'] },
};

/** The volume of a sandbox, which has its files and the output of its launches. */
export function volumeClaim(
  options: Pick<KubernetesOptions, 'limits' | 'storageClass'>,
  metadata: object,
): object {
  const { limits, storageClass } = options;
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata,
    spec: {
      accessModes: ['ReadWriteOnce'],
      ...(storageClass !== undefined && { storageClassName: storageClass }),
      resources: { requests: { storage: String(limits.diskBytes + SPOOL_ROOM) } },
    },
  };
}

/**
 * The pod of a sandbox. The agent's container has nothing of ours but programs that it can only read; the supervisor's
 * container has another user, and the only one with the output of launches.
 * @param forbidden addresses that must not be reachable before anything runs
 */
export function podOf(
  options: KubernetesOptions,
  names: ObjectNames,
  pod: { sandboxId: string; writableRoot: boolean; forbidden: readonly ForbiddenAddress[] },
): object {
  const name = names.of(pod.sandboxId);
  const { runtimeClass, pullSecrets = [] } = options;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: names.labels(pod.sandboxId) },
    spec: {
      // Nothing is started twice.
      restartPolicy: 'Never',
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostname: HOST_NAME,
      terminationGracePeriodSeconds: GRACE_SECONDS,
      dnsPolicy: 'None',
      dnsConfig: {
        nameservers: [NAMESERVER],
        options: [
          { name: 'timeout', value: '5' },
          { name: 'attempts', value: '2' },
        ],
      },
      ...(runtimeClass !== undefined && { runtimeClassName: runtimeClass }),
      ...(pullSecrets.length > 0 && {
        imagePullSecrets: pullSecrets.map((each) => ({ name: each })),
      }),
      securityContext: {
        runAsNonRoot: true,
        fsGroup: USERS.volume,
        // Later pods must not change the permissions of the agent's files.
        fsGroupChangePolicy: 'OnRootMismatch',
        seccompProfile: { type: 'RuntimeDefault' },
        // The relay listens on the ports of HTTP, TLS and DNS.
        sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '0' }],
      },
      initContainers: [prepareContainer(options, pod.forbidden)],
      containers: [supervisorContainer(options), agentContainer(options, pod.writableRoot)],
      volumes: [
        { name: 'sandbox', persistentVolumeClaim: { claimName: name } },
        { name: 'programs', emptyDir: {} },
        { name: 'sockets', emptyDir: { medium: 'Memory' } },
        {
          name: 'memory',
          emptyDir: { medium: 'Memory', sizeLimit: String(options.limits.tmpBytes) },
        },
      ],
    },
  };
}

/** Proves that the network is closed, copies our programs and makes the folders, before the other containers start. */
function prepareContainer(
  { supervisorImage }: KubernetesOptions,
  forbidden: readonly ForbiddenAddress[],
): object {
  const preparation: Preparation = {
    forbidden,
    programs: PROGRAMS,
    volume: VOLUME,
    folders: FOLDERS,
  };
  return {
    name: PREPARE,
    image: supervisorImage,
    imagePullPolicy: 'IfNotPresent',
    command: ['node', `${INSIDE}/prepare.js`, JSON.stringify(preparation)],
    securityContext: {
      ...NO_RIGHTS,
      readOnlyRootFilesystem: true,
      runAsUser: USERS.agent,
      runAsGroup: USERS.agent,
    },
    resources: resources(64 * MiB, SUPERVISOR_MEMORY, undefined),
    volumeMounts: [
      { name: 'programs', mountPath: PROGRAMS },
      { name: 'sandbox', mountPath: VOLUME },
    ],
  };
}

function supervisorContainer({ supervisorImage, idleSeconds }: KubernetesOptions): object {
  const setup: PodSetup = {
    shim: { socket: SHIM_SOCKET },
    sockets: SOCKETS,
    state: `${VOLUME}/supervisor`,
    idleSeconds: { first: Math.max(idleSeconds, FIRST_LAUNCH_SECONDS), later: idleSeconds },
  };
  return {
    name: SUPERVISOR,
    image: supervisorImage,
    imagePullPolicy: 'IfNotPresent',
    command: ['node', ...SUPERVISOR_NODE_FLAGS, `${INSIDE}/daemon.js`, JSON.stringify(setup)],
    securityContext: {
      ...NO_RIGHTS,
      readOnlyRootFilesystem: true,
      runAsUser: USERS.supervisor,
      runAsGroup: USERS.supervisor,
    },
    resources: resources(96 * MiB, SUPERVISOR_MEMORY, undefined),
    volumeMounts: [
      { name: 'programs', mountPath: PROGRAMS },
      { name: 'sandbox', mountPath: VOLUME },
      { name: 'sockets', mountPath: SOCKETS },
    ],
  };
}

const SHIM_SOCKET = `${PROGRAMS}/shim`;

/** Folders on the volume by where agents see them. */
const MOUNTS: readonly (readonly [folder: string, path: string])[] = [
  ['home', HOME],
  ['workspace', WORKSPACE],
  // Programs expect files of either there when they come back.
  ['tmp', '/tmp'],
  ['var-tmp', '/var/tmp'],
  ['programs', AGENT_PROGRAMS],
];

/** Folders on the volume with their permissions. */
const FOLDERS = [
  { name: 'home', mode: 0o700 },
  { name: 'workspace', mode: 0o700 },
  { name: 'tmp', mode: 0o1777 },
  { name: 'var-tmp', mode: 0o1777 },
  { name: 'programs', mode: 0o755 },
];

/** What counts as the disk of a sandbox. */
export const DISK = [HOME, WORKSPACE, '/tmp', '/var/tmp'] as const;

function agentContainer(options: KubernetesOptions, writableRoot: boolean): object {
  const { image, limits, cpus } = options;
  const setup: ShimSetup = {
    socket: SHIM_SOCKET,
    confine: CONFINE,
    pipes: SHARED_MEMORY,
    disk: { folders: DISK, limitBytes: limits.diskBytes },
  };
  return {
    name: AGENT,
    image,
    imagePullPolicy: 'IfNotPresent',
    // The first process reaps orphans, cannot be killed from inside, and ends with the shim. Nothing of the image runs
    // before a launch.
    command: [
      ...confine(CONFINE, { reap: true, clearEnvironment: true }),
      `${PROGRAMS}/lib/loader`,
      '--library-path',
      `${PROGRAMS}/lib`,
      `${PROGRAMS}/bin/node`,
      ...SUPERVISOR_NODE_FLAGS,
      '--openssl-config=/dev/null',
      `${PROGRAMS}/dist/src/supervisor/shim/shim.js`,
      JSON.stringify(setup),
    ],
    workingDir: '/',
    securityContext: {
      ...NO_RIGHTS,
      readOnlyRootFilesystem: !writableRoot,
      runAsUser: USERS.agent,
      runAsGroup: USERS.agent,
    },
    resources: resources(128 * MiB, limits.memoryBytes + SHIM_MEMORY, cpus),
    volumeMounts: [
      { name: 'programs', mountPath: PROGRAMS, readOnly: true },
      { name: 'memory', mountPath: SHARED_MEMORY },
      ...MOUNTS.map(([subPath, mountPath]) => ({ name: 'sandbox', subPath, mountPath })),
    ],
  };
}

function resources(request: number, memory: number, cpus: number | undefined): object {
  return {
    requests: { cpu: '25m', memory: String(request) },
    limits: {
      memory: String(memory),
      'ephemeral-storage': '1Gi',
      ...(cpus !== undefined && { cpu: String(cpus) }),
    },
  };
}
