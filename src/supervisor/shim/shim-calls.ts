import type { Confinement } from '../confine.js';
import type { LaunchRequest, PlainStage } from '../launch-request.js';

/*
 * The calls of a supervisor to the shim, which starts programs in the agent's container. The supervisor is in another
 * container of the pod: it has neither the agent's files nor its processes, and no right to become another user. The
 * shim runs as the agent's user, so the supervisor treats its answers as hostile.
 *
 * - `run` (input: a {@link ShimRequest} as JSON) starts a launch, and yields `started`, its output, `limit` and `exit`.
 *   Cancelling the call, or losing the connection, kills the launch.
 * - `signal` asks the processes of a launch to end, or kills them.
 * - `end` kills what is left of a launch and resolves when there is nothing left.
 * - `pipe` runs one of our programs with the agent's rights, with the call's input as its standard input.
 * - `room` yields how many bytes the agent may still write.
 */
/** A launch for the shim. */
export interface ShimRequest {
  launchId: string;
  /** With the stage that the shim applies. */
  request: Omit<LaunchRequest, 'stage'> & { stage: PlainStage };
}

/** What `run` yields, as the header of an item; output is in the item's bytes. */
export type ShimEvent =
  | { kind: 'started' }
  | { kind: 'stdout' | 'stderr' }
  | { kind: 'limit'; reason: ShimLimit }
  | { kind: 'exit'; code: number };

/** The limits that only the shim can measure. */
export type ShimLimit = 'disk_limit' | 'memory_limit';

/** The parameters of `pipe`, whose items have the kind `stdout` or `stderr`, and at last `exit`. */
export interface PipedProgram {
  how: Pick<Confinement, 'files' | 'writeFiles' | 'lookUp'>;
  operands: readonly string[];
  environment: Readonly<Record<string, string>>;
}

/** The arguments of the shim. Paths are as it sees them. */
export interface ShimSetup {
  /** The socket at which the supervisor waits for the shim. */
  socket: string;
  /** The program that confines the runtime. */
  confine: string;
  /** A folder for the named pipes of launches, which have no name as soon as they are open. */
  pipes: string;
  /** What `room` counts. */
  disk: { folders: readonly [string, ...string[]]; limitBytes: number };
}
