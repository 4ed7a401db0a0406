import type { NpmProgram } from './npm-program.js';

/**
 * The port between the service and whatever makes sandboxes. A driver is small and honest: it does what is written
 * here, throws {@link SandboxError} when it cannot, and every driver passes `test/contracts/sandbox-driver.contract.ts`.
 *
 * Identity: a sandbox is named by a UUID, its session's id unless the record of the sandboxes names another one; a launch
 * by its turn's id. A driver keeps whatever it needs to find both again, so that a process that restarts (or another one
 * on the same host) goes on where the last one stopped.
 *
 * Not guaranteed: that a sandbox survives its host; that the order between stdout and stderr is other than by arrival;
 * that anything but files in the home and the workspace survives between two launches (processes do not, /tmp does not).
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

  /**
   * Makes the sandbox, with the network closed to everything that `network` does not allow. Idempotent: creating one
   * that exists finishes a half-made one and keeps its files.
   */
  create(options: CreateSandboxOptions): Promise<void>;

  /** Names of the hosts from which package managers install in this driver's sandboxes; patterns as in a policy. */
  packageHosts(options: { signal: AbortSignal }): Promise<readonly string[]>;

  /** Replaces the network policy; it holds for everything launched afterwards. */
  restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void>;

  /** Writes files as the agent's user, making parent folders (0755, or 0700 for dot-folders in the home). Never follows a link out. */
  writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void>;

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
  providePrograms(options: SandboxRef & { programs: readonly NpmProgram[] }): Promise<void>;

  /** The address under which a gateway that configuration names is reached from inside of a sandbox. */
  gatewayUrl(url: string): string;

  /**
   * Starts the runtime detached from this process, at most once for a `launchId`: if it was ever launched, this returns
   * without starting anything. When it resolves, {@link follow} finds it.
   */
  launch(options: LaunchOptions): Promise<void>;

  /**
   * Yields the launch's output from a byte offset of its spool on, live, and last the exit. Leaving the loop, or the
   * signal, stops following and nothing else. Following a launch that never was, or whose supervisor is gone without
   * having recorded an exit, yields `{ kind: 'exit', reason: 'lost' }` after all output that is there.
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

  /** Is the sandbox there and usable for another turn? */
  exists(options: SandboxRef): Promise<boolean>;

  /** Kills what runs in it and removes it with all its files. Idempotent. */
  destroy(options: SandboxRef): Promise<void>;

  /** Ids of all sandboxes of this installation that this driver knows, half-made ones included. For the reaper. */
  list(options: { signal: AbortSignal }): Promise<string[]>;

  /** Lets go of timers and watchers in this process. Leaves sandboxes and launches alone. */
  close(): Promise<void>;
}

export interface SandboxLayout {
  home: string;
  workspace: string;
}

export interface SandboxRef {
  /** UUID v4, lowercase. */
  sandboxId: string;
  signal: AbortSignal;
}

export interface LaunchRef extends SandboxRef {
  /** The turn's id: UUID v4, lowercase. */
  launchId: string;
}

/**
 * What a sandbox may reach, by name. TCP only, to the ports that the relay serves. Private, loopback, link-local and
 * metadata addresses are never reached, whatever a name resolves to.
 */
export interface NetworkPolicy {
  mode: 'unrestricted' | 'limited';
  /** Lower-case host names; `x` is exact, `*.x` any strict subdomain. Only read when `mode` is `limited`. */
  allowedHosts: readonly string[];
  /**
   * Which of the gateways that configuration names may be reached, as `host:port`; without it, all of them. Only read
   * when `mode` is `limited`.
   */
  gateways?: readonly string[];
}

export interface CreateSandboxOptions extends SandboxRef {
  /** Will `runScript({ as: 'setup' })` install system software? A driver may then choose a heavier, writable root. */
  writableRoot: boolean;
  network: NetworkPolicy;
}

export interface SandboxFile {
  /** Absolute, inside the home or the workspace. */
  path: string;
  content: string | Uint8Array;
  /** Default 0o644. */
  mode?: number;
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
}

export interface ScriptResult {
  /** 0 to 255; 128 + n for signal n. */
  exitCode: number;
  /** The end of stdout and stderr as they came, at most 8 KiB, UTF-8. Not redacted. */
  outputTail: string;
}

export interface LaunchOptions extends LaunchRef {
  /** Program and arguments. Never holds a secret: arguments are public on the host. */
  command: readonly [string, ...string[]];
  /** The whole environment beyond PATH, HOME, USER, LANG, TERM; may hold secrets. */
  env: Readonly<Record<string, string>>;
  /** Fed to stdin, which is then closed. */
  stdin: string;
  /** Absolute; default the workspace. */
  cwd?: string;
  /** The supervisor ends the launch at this time, whatever becomes of the service. Milliseconds since 1970. */
  deadline: number;
  /** The supervisor ends a launch that has written more than this. Bytes, both streams together. */
  outputLimit: number;
}

/** One read of the runtime's output, as raw bytes: it may begin or end in mid-character. At most 64 KiB. */
export interface SpoolChunk {
  kind: 'chunk';
  stream: 'stdout' | 'stderr';
  data: Buffer;
  /** Where this chunk's frame begins in the spool: following from here yields it again. */
  offset: number;
  /** Where it ends: following from here yields what comes next. */
  nextOffset: number;
}

export interface SpoolExit {
  kind: 'exit';
  /**
   * `exited`: by itself, see `exitCode`. `killed`: by {@link SandboxDriver.kill}. `deadline`, `output_limit`,
   * `disk_limit`, `memory_limit`: ended by the supervisor. `lost`: nobody recorded how it ended.
   */
  reason:
    'exited' | 'killed' | 'deadline' | 'output_limit' | 'disk_limit' | 'memory_limit' | 'lost';
  /** 0 to 255; 128 + n for signal n. `null` unless `reason` is `exited`. */
  exitCode: number | null;
}

export type SpoolEvent = SpoolChunk | SpoolExit;
