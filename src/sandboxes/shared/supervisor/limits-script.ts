import type { SandboxLimits } from '../sandbox-options.js';

/** The descriptor on which {@link limitsScript} says that the command is about to run. */
export const RUNNING_FD = 7;

/**
 * The kernel counts memory that is only reserved, too, and JavaScript engines reserve generously: held to the limit
 * itself, some collect garbage all the time. What is really used is watched by the supervisor.
 */
const ADDRESS_SPACE_FACTOR = 2;

/**
 * A shell script that sets the limits of one process and everything below it, then becomes its arguments. It has to run
 * where the limits count: the kernel counts processes per user namespace.
 * A limit that cannot be set ends it with 125: better nothing than something unlimited.
 */
export function limitsScript(limits: SandboxLimits, limitProcesses: boolean): string {
  const dataKibibytes = Math.floor((limits.memoryBytes * ADDRESS_SPACE_FACTOR) / 1024);
  // dash and bash name this limit differently.
  const processes = `{ ulimit -u ${limits.processes} 2>/dev/null || ulimit -p ${limits.processes}; }`;
  return [
    'echo 500 2>/dev/null >/proc/self/oom_score_adj || :',
    [
      'ulimit -c 0',
      `ulimit -n ${limits.openFiles}`,
      `ulimit -d ${dataKibibytes}`,
      ...(limitProcesses ? [processes] : []),
    ]
      .join(' && ')
      .concat(' || exit 125'),
    `printf r >&${RUNNING_FD}`,
    `exec ${RUNNING_FD}>&-`,
    'exec "$@"',
  ].join('\n');
}
