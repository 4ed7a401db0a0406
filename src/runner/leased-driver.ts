import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import type { Lease } from './lease.js';

/** What a turn does to its sandbox. */
export type TurnSandbox = Pick<
  SandboxDriver,
  | 'create'
  | 'packageHosts'
  | 'providePrograms'
  | 'restrictNetwork'
  | 'writeFiles'
  | 'runScript'
  | 'launch'
  | 'kill'
>;

/**
 * The driver for one turn: everything that changes the sandbox waits until the lease is certain. The database guards
 * itself by the fencing number; a sandbox cannot, so a worker that wakes up after its time must not touch it.
 */
export function leasedDriver(driver: SandboxDriver, lease: Lease, stop: AbortSignal): TurnSandbox {
  const held =
    <Options, Result>(work: (options: Options) => Promise<Result>) =>
    async (options: Options): Promise<Result> => {
      await lease.certain(stop);
      return work(options);
    };
  return {
    packageHosts: (options) => driver.packageHosts(options),
    create: held((options) => driver.create(options)),
    providePrograms: held((options) => driver.providePrograms(options)),
    restrictNetwork: held((options) => driver.restrictNetwork(options)),
    writeFiles: held((options) => driver.writeFiles(options)),
    runScript: held((options) => driver.runScript(options)),
    launch: held((options) => driver.launch(options)),
    kill: held((options) => driver.kill(options)),
  };
}
