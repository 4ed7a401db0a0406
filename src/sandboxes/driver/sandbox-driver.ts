import type { Duplex } from 'node:stream';
import type { ExportedMetric } from '../../gateway/broker/broker-stats.js';
import type {
  NetworkPolicy,
  SandboxRef,
  LaunchRef,
  SandboxFile,
  ScriptResult,
  LaunchOptions,
  SpoolEvent,
} from '../../supervisor/calls.js';

import type { FileCall } from '../../supervisor/files/file-call.js';
import type { Item } from '../../supervisor/protocol/frames.js';

export { SandboxError } from '../../supervisor/sandbox-error.js';
export type * from '../../supervisor/calls.js';

/** A program from the npm registry, at one exact version. */
export interface NpmProgram {
  /** Its name on the PATH. */
  bin: string;
  package: string;
  version: string;
  /**
   * Candidates for the file to run, below `node_modules`; the first that exists is used. `{arch}` is replaced by Node's
   * name of the processor. Install scripts are never run, so this names the file that such a script would put in place.
   */
  entries: readonly string[];
}

/** The package and version in npm's notation. */
export function packageSpec(program: Pick<NpmProgram, 'package' | 'version'>): string {
  return `${program.package}@${program.version}`;
}

/** How a limit is enforced. */
export type Enforcement =
  /** Enforced by the kernel, or by a file system of a fixed size. */
  | 'hard'
  /** Not limited, but reduced to a fair share while others compete. */
  | 'shared'
  /** The supervisor measures several times a second and ends a launch that exceeds the limit. */
  | 'monitored'
  /** Not limited at all. */
  | 'unlimited';

/** How this host enforces each limit of a sandbox. */
export interface LimitReport {
  memory: Enforcement;
  processes: Enforcement;
  cpu: Enforcement;
  disk: Enforcement;
}

/** Describes in one line for a log which limits are hard and which are only monitored. */
export function describeLimits(report: LimitReport): string {
  return Object.entries(report)
    .map(([limit, how]) => `${limit} ${String(how)}`)
    .join(', ');
}

/** The limits that a sandbox can exceed for a while, which may harm others. */
export function softLimits({ memory, processes }: LimitReport): string[] {
  const soft = { memory, processes };
  return Object.entries(soft).flatMap(([limit, how]) => (how === 'hard' ? [] : [limit]));
}

/**
 * The port between the service and whatever makes sandboxes. A driver is small and honest: it does what is written
 * here, throws {@link SandboxError} when it cannot, and every driver passes `test/contracts/sandbox-driver.contract.ts`.
 *
 * Identity: a sandbox is named by a UUID, its session's id unless the record of the sandboxes names another one; a launch
 * by its turn's id. A driver keeps whatever it needs to find both again, so that a process that restarts (or another one
 * on the same host) goes on where the last one stopped.
 *
 * What persists from the setup on and between launches is files: home, workspace, `/tmp`, `/var/tmp` and, where software was
 * installed, the system. All of it counts as disk and is private to the sandbox. `/run` and `/dev/shm` begin empty with
 * each launch, and every process ends with the launch that started it.
 *
 * Not guaranteed: that a sandbox survives its host; that the order between stdout and stderr is other than by arrival.
 */
export interface SandboxDriver {
  /** The name in `SANDBOX_DRIVER`. */
  readonly name: string;

  /**
   * Where things are inside a sandbox, as absolute paths; known before the sandbox is made. `home` and `workspace` belong
   * to the agent and persist over turns. The same for all sandboxes where each has a file system of its own; a driver
   * that only has the host's gives every sandbox other paths.
   */
  layout(sandboxId: string): SandboxLayout;

  /**
   * Does the upstream answer and can it isolate? Cheap (a few ms; the answer may be cached for seconds).
   * @throws SandboxError `unavailable`, naming the cause and the way out.
   */
  preflight(options: { signal: AbortSignal }): Promise<void>;

  /** How the limits of a sandbox are kept here. Throws as {@link preflight} does. */
  limits(options: { signal: AbortSignal }): Promise<LimitReport>;

  /**
   * Makes the sandbox, with the network closed to everything that `network` does not allow. Idempotent: creating one
   * that exists finishes a half-made one and keeps its files.
   */
  create(options: CreateSandboxOptions): Promise<void>;

  /**
   * Names of the hosts from which package managers install in this driver's sandboxes; patterns as in a policy. A driver
   * whose image only a sandbox knows reads them there.
   * @throws SandboxError `gone` if only the sandbox could tell and it does not exist yet
   */
  packageHosts(options: SandboxRef): Promise<readonly string[]>;

  /** Replaces the network policy; it holds for everything launched afterwards. */
  restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void>;

  /** Writes files as the agent's user, making parent folders (0755, or 0700 for dot-folders in the home). Never follows a link out. */
  writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void>;

  /**
   * Serves one access to files in home and workspace, as the agent's user; to be used through `FileAccess`. May run
   * beside launches. Follows no link out of the two folders, and never waits for a pipe, a device or another process.
   * @throws SandboxError `missing`, `conflict`, `full`, also while it yields
   */
  files(options: SandboxRef & FileCall): AsyncGenerator<Item, void, undefined>;

  /**
   * Runs a bash script to its end. `as: 'setup'` may install software (root inside, where the driver can);
   * `as: 'agent'` runs with exactly the agent's rights. The script is fed by stdin or a private file, never by arguments.
   * A non-zero exit is a result, not an error; abort kills everything the script started. One at a time in a sandbox:
   * a script that a dead process left running is ended first.
   */
  runScript(options: RunScriptOptions): Promise<ScriptResult>;

  /**
   * Sees to it that what is launched from now on finds these programs on its PATH. What the sandbox has under those names
   * itself is left as it is and comes first; the others are installed once for all sandboxes and given read-only.
   * @throws SandboxError `failed` with the reason when they cannot be installed
   */
  providePrograms(options: ProvideProgramsOptions): Promise<void>;

  /**
   * Makes what sandboxes share and the first of them would have to wait for, unless it is there. A driver that shares
   * nothing leaves it out.
   * @param options `onProgress`: told in a few words what is going on.
   * @throws SandboxError
   */
  prepareShared?(options: {
    signal: AbortSignal;
    onProgress: (message: string) => void;
  }): Promise<void>;

  /**
   * Are the results of setups kept for other sandboxes? A driver that runs them in each sandbox leaves it out.
   * @throws SandboxError `unavailable` if that cannot be told now
   */
  sharesSetups?(options: { signal: AbortSignal }): Promise<boolean>;

  /** Where programs in a sandbox reach the gateway that adds their credentials. */
  gateway(): Promise<GatewayAccess>;

  /** The metrics of the gateway; none if it is not running. A driver whose gateway this process cannot ask lacks it. */
  gatewayMetrics?(): Promise<readonly ExportedMetric[]>;

  /** Metrics of the driver itself, for one that depends on a service elsewhere. */
  metrics?(): readonly ExportedMetric[];

  /**
   * The addresses of all gateways, for a driver that may have several; each is connected to. A driver with one lacks it.
   * @throws Error if they are unknown now
   */
  gatewayAddresses?(): Promise<readonly string[]>;

  /**
   * A connection to the gateway, which speaks the protocol of gateway/protocol.ts. Without it, no usage is counted.
   * @param address one of {@link gatewayAddresses}, for a driver that has these
   * @throws Error if no gateway runs
   */
  connectGateway?(address?: string): Promise<Duplex>;

  /**
   * Starts the runtime detached from this process, at most once for a `launchId`: if it was ever launched, this returns
   * without starting anything. When it resolves, {@link follow} finds it.
   * @throws SandboxError `unavailable` when it cannot be told now whether it was launched: to be repeated
   */
  launch(options: LaunchOptions): Promise<void>;

  /**
   * Yields the launch's output from a byte offset of its spool on, live, and last the exit. Leaving the loop, or the
   * signal, stops following and nothing else. Following a launch that never was, or whose supervisor is proven to be gone
   * without having recorded an exit, yields `{ kind: 'exit', reason: 'lost' }` after all output that is there. Whatever
   * keeps the driver from telling is waited for, without an end: the caller has the signal.
   */
  follow(options: LaunchRef & { offset: number }): AsyncIterable<SpoolEvent>;

  /**
   * How many bytes of the launch's output lie behind an offset of its spool. For figures only: a driver that cannot tell
   * cheaply leaves it out.
   */
  backlog?(options: LaunchRef & { offset: number }): Promise<number>;

  /** Ends everything that the launch started, TERM-ignoring and setsid children included, in under 2 s. Idempotent. */
  kill(options: LaunchRef): Promise<void>;

  /** Removes the spool of a finished launch. Idempotent. The launch stays launched. */
  discardSpool(options: LaunchRef): Promise<void>;

  /**
   * Is the sandbox there and usable for another turn? `no` only where that is proven; whatever keeps the driver from
   * telling (no descriptors left, an engine that does not answer in the signal's time) is `unknown`, and nothing is given
   * up for it.
   * @throws SandboxError `aborted` if the signal had fired before
   */
  exists(options: SandboxRef): Promise<Existence>;

  /** Kills what runs in it and removes it with all its files. Idempotent. */
  destroy(options: SandboxRef): Promise<void>;

  /**
   * Ids of all sandboxes of this installation that this driver knows, half-made ones included. For the reaper.
   * @throws SandboxError `unavailable` rather than leaving one out
   */
  list(options: { signal: AbortSignal }): Promise<string[]>;

  /**
   * The folders of this host whose disk the sandboxes fill; left out, or none, where that is elsewhere. Cheap: asked for
   * with every new session.
   */
  storage?(options: { signal: AbortSignal }): Promise<readonly string[]>;

  /** How many sandboxes there are, and how many there may be at most; left out where nothing sets a number. Cheap. */
  places?(options: { signal: AbortSignal }): Promise<{ taken: number; most: number } | undefined>;

  /** How the disk of sandboxes is limited here. For reports. */
  diskLimit?(options: { signal: AbortSignal }): Promise<DiskLimit>;

  /** Lets go of timers and watchers in this process. Leaves sandboxes and launches alone. */
  close(): Promise<void>;
}

/** How programs in sandboxes reach the gateway. */
export interface GatewayAccess {
  /** Without a trailing slash. */
  url: string;
  /** Whether the gateway learns from which sandbox a request comes. If not, grants are valid in any sandbox. */
  identifies: boolean;
  /** There is no gateway that sandboxes can reach, so that no sandbox may get credentials. Default: false. */
  isMissing?: boolean;
}

/** Whether something is there, as far as it can be told. */
export type Existence = 'yes' | 'no' | 'unknown';

/**
 * `hard`: nothing that a sandbox does gets past it. `monitored`: what a sandbox holds is counted several times a second, and
 * it is stopped once that is too much.
 */
export interface DiskLimit {
  kind: 'hard' | 'monitored';
  /** By what, or why not better, in words for the operator. */
  by: string;
}

export interface SandboxLayout {
  home: string;
  workspace: string;
}

/**
 * Told what a call waits for that sandboxes share, such as a base system that is being made: one sentence, and another one
 * when that goes on to something else; `null` when the wait is over. Never told of what is there already.
 */
export type OnSharedWork = (what: string | null) => void;

export interface ProvideProgramsOptions extends SandboxRef {
  programs: readonly NpmProgram[];
  /** The policy that the sandbox has. It applies again when the programs are there, if the driver had to widen it. */
  network: NetworkPolicy;
  onSharedWork?: OnSharedWork;
}

/**
 * A setup script whose result sessions share: it depends on nothing but the sandbox's system, the script, its variables
 * and the network policy, and on no file of a session. A driver builds the result once, where no file of a session is,
 * and takes it over into other sandboxes that ask for the same.
 */
export interface SharedSetup {
  /** Only sandboxes of the same scope share a result: the environment, which belongs to one user. */
  scope: string;
  script: string;
  env: Readonly<Record<string, string>>;
  network: NetworkPolicy;
}

/** The result of a setup that was ended because it took too long. */
export function builtTooLong(limitMs: number): ScriptResult {
  const outputTail = `The environment was not built within ${limitMs / 1000} seconds`;
  return { exitCode: 124, outputTail };
}

export interface CreateSandboxOptions extends SandboxRef {
  /**
   * The setup that {@link SandboxDriver.runScript} will be asked for next. If its result is there, the driver may begin
   * with it; otherwise it builds nothing yet.
   */
  setup?: SharedSetup;
  onSharedWork?: OnSharedWork;
  /** Will `runScript({ as: 'setup' })` install system software? A driver may then choose a heavier, writable root. */
  writableRoot: boolean;
  network: NetworkPolicy;
}

export interface RunScriptOptions extends SandboxRef {
  script: string;
  as: 'setup' | 'agent';
  /** Exported to the script. Default: none beyond PATH, HOME, USER, LANG, TERM. */
  env?: Readonly<Record<string, string>>;
  /**
   * Does what the script leaves behind depend on nothing but the sandbox's system and network policy, the script and
   * `env`, and on no file of the session? A driver may then run it where no such file is, and take its result over into
   * other sandboxes that ask for the same. Default: false.
   */
  reusable?: boolean;
  /** Of a reusable script: who shares the result, and the network policy of the build. Default: the sandbox's own. */
  shared?: Pick<SharedSetup, 'scope' | 'network'>;
  /** Called with `true` if the result of a reusable script has to be built first, and with `false` once it is there. */
  onBuild?: (building: boolean) => void;
}
