/** The arguments and results of supervisor calls, which the drivers' port also uses. */

/**
 * The hosts that a sandbox may reach by name, over TCP and only on the ports that the relay serves. Private, loopback,
 * link-local and metadata addresses are never reachable, whatever a name resolves to.
 */
export interface NetworkPolicy {
  mode: 'unrestricted' | 'limited';
  /** Lower-case host names; `x` is exact, `*.x` any strict subdomain. Only read when `mode` is `limited`. */
  allowedHosts: readonly string[];
  /** The configured gateways that may be reached, as `host:port`. Default: all. Only read when `mode` is `limited`. */
  gateways?: readonly string[];
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

export interface SandboxFile {
  /** Absolute, inside the home or the workspace. */
  path: string;
  content: string | Uint8Array;
  /** Default 0o644. */
  mode?: number;
}

export interface ScriptResult {
  /** 0 to 255; 128 + n for signal n. */
  exitCode: number;
  /**
   * The end of stdout and stderr in order of arrival, at most 8 KiB, UTF-8. Not redacted. If output was cut, it begins
   * with a whole line, because redaction does not recognise a part of a secret.
   */
  outputTail: string;
}

export interface LaunchOptions extends LaunchRef {
  /** Program and arguments. Must not contain secrets, because arguments are visible on the host. */
  command: readonly [string, ...string[]];
  /** The environment in addition to PATH, HOME, USER, LANG and TERM; may contain secrets. */
  env: Readonly<Record<string, string>>;
  /** Written to stdin, which is then closed. */
  stdin: string;
  /** Absolute; default the workspace. */
  cwd?: string;
  /** The supervisor ends the launch at this time, even if the service is gone. Milliseconds since 1970. */
  deadline: number;
  /** The supervisor ends a launch that has written more than this. Bytes, both streams together. */
  outputLimit: number;
}

/** A piece of the runtime's output as raw bytes, which may begin or end inside a character. At most 64 KiB. */
export interface SpoolChunk {
  kind: 'chunk';
  stream: 'stdout' | 'stderr';
  data: Buffer;
  /** The offset of this chunk's frame in the spool: following from here yields it again. */
  offset: number;
  /** The offset after it: following from here yields the next chunk. */
  nextOffset: number;
}

export interface SpoolExit {
  kind: 'exit';
  /**
   * `exited`: see `exitCode`. `killed`: by the call `kill`. `deadline`, `output_limit`, `disk_limit`, `memory_limit`:
   * ended by the supervisor. `lost`: its exit was not recorded.
   */
  reason:
    'exited' | 'killed' | 'deadline' | 'output_limit' | 'disk_limit' | 'memory_limit' | 'lost';
  /** 0 to 255; 128 + n for signal n. `null` unless `reason` is `exited`. */
  exitCode: number | null;
}

export type SpoolEvent = SpoolChunk | SpoolExit;
