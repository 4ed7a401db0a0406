/** The descriptors that the runtime gets as 0, 1 and 2. */
export type RuntimeStdio = readonly [stdin: number, stdout: number, stderr: number];

/** The runtime and all that it started, however it is isolated. */
export interface RuntimeProcess {
  /**
   * Resolves when the runtime's own program is about to be executed, with everything around it in place.
   * @throws Error saying what failed; nothing of the command has run then
   */
  readonly started: Promise<void>;
  /** The exit code of the runtime's main process: 0 to 255, 128 + n for signal n. Never rejects. */
  readonly exited: Promise<number>;
  /** Everything that it runs now. */
  pids(): number[];
  /** Asks all of it to end. */
  terminate(): void;
  /** Ends all of it. */
  destroy(): void;
}

/** The exit code that a shell would report. */
export function shellExitCode(code: number | null, signalNumber: number): number {
  return code ?? 128 + signalNumber;
}
