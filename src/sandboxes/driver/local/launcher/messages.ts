/** A program to be started by the launcher. */
export interface SpawnRequest {
  id: number;
  /** The program and its arguments. */
  argv: readonly string[];
  /** All of it; nothing is inherited. */
  env: Readonly<Record<string, string>>;
  cwd: string;
  stdin: Uint8Array;
  /** Fed to the program from descriptor 3 on. */
  descriptors: readonly Uint8Array[];
  /** A file that takes its standard error, appended to and never followed as a link; else it counts as output. */
  log: string | null;
  /**
   * `end`: answer when it has ended. `line`: answer with its first line of output, and let go of it. `connected`: connect
   * its standard input and output with the service by a socket, and answer when it has ended.
   */
  until: 'end' | 'line' | 'connected';
}

/** Ends a program that is being waited for, with all that it has started. */
export interface AbortRequest {
  abort: number;
}

/** Comes before the program is started: while it has not come, nothing was. */
export interface SpawnNotice {
  begins: number;
}

/** Comes with the service's end of a socket, whose other end is a program's standard input and output. */
export interface SpawnConnection {
  connected: number;
}

export interface SpawnAnswer {
  id: number;
  /** How it ended: its exit code, 137 for a signal; `null` when it could not be started, or is not waited for. */
  exitCode: number | null;
  /** The end of what it wrote; of a program that is let go, its first line, or nothing if there was none. */
  output: string;
}
