import { setTimeout as delay } from 'node:timers/promises';
import type Docker from 'dockerode';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { ContainerSpecs } from './container-specs.js';
import { ensureContainer, removeContainer, startContainer } from './containers.js';
import type { RunningSandbox } from './docker-sandboxes.js';
import { inTime, unless } from './engine.js';
import { type DockerSandboxOptions, LABELS } from './options.js';
import { TOO_MUCH } from './inside/count-protocol.js';
import { type EngineQuotas, quotaFor } from './preflight.js';

/** The pause between checks: at least a second, and at least twice as long as a check takes. */
const REST = { leastMs: 1000, times: 2 };
const ANSWER_MS = 60_000;
/** After this many failed checks in a row, the limit counts as exceeded. */
const FAILURES = 20;

/**
 * Enforces the disk limit of setup scripts from outside their container, because they run as root there and may stop
 * the supervisor that counts. The engine measures the container's own file system if it has no quota; a separate
 * container counts the volumes. Neither sees files without a name.
 */
export class SetupDisk {
  constructor(
    private readonly docker: Docker,
    private readonly options: Pick<DockerSandboxOptions, 'limits' | 'engine'>,
    private readonly specs: ContainerSpecs,
    private readonly quotas: EngineQuotas,
  ) {}

  /**
   * Runs `work` in a container. If the container writes too much, ends everything in it.
   * @throws SandboxError `failed` in that case; the errors of `work`
   */
  async watched<T>(
    sandbox: RunningSandbox,
    signal: AbortSignal,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { containers } = await this.quotas.supported(sandbox.image);
    const done = new AbortController();
    const over = new AbortController();
    const end = async (): Promise<void> => {
      if (done.signal.aborted) return;
      over.abort();
      await sandbox.container.kill().catch(unless([404, 409], undefined));
    };
    const counter = await this.counter(sandbox);
    const watches = [
      this.untilFull(counter, done.signal),
      ...(containers ? [] : [this.untilLarge(sandbox.container, done.signal)]),
    ].map((watch) => watch.then(end, () => undefined));
    try {
      const result = await work(AbortSignal.any([signal, over.signal]));
      if (!over.signal.aborted) return result;
    } catch (error) {
      if (!over.signal.aborted || signal.aborted) throw error;
    } finally {
      done.abort();
      await removeContainer(counter);
      await Promise.all(watches);
    }
    throw new SandboxError('failed', 'the sandbox is out of disk space');
  }

  private async counter({ container, volumes }: RunningSandbox): Promise<Docker.Container> {
    const { Config, Name } = await container.inspect();
    const name = `${Name.slice(1)}-counter`;
    // A process that died may have left a counter behind.
    await removeContainer(this.docker.getContainer(name));
    const labels = { ...Config.Labels, [LABELS.role]: 'counter' };
    return ensureContainer(this.docker, this.specs.counter({ name, labels, volumes }));
  }

  /** Resolves when the counter reports that the limit is exceeded. Restarts a counter that ended for another reason. */
  private async untilFull(counter: Docker.Container, done: AbortSignal): Promise<void> {
    await this.ask(done, async () => {
      await startContainer(counter);
      const { StatusCode: code } = (await counter.wait()) as { StatusCode: number };
      if (code !== TOO_MUCH) throw new Error('the counter ended');
      return true;
    });
  }

  /** Resolves when a container's own file system has grown too large. */
  private async untilLarge(container: Docker.Container, done: AbortSignal): Promise<void> {
    const limit = Number(quotaFor(this.options.limits.diskBytes));
    const { host } = this.options.engine;
    await this.ask(done, async () => {
      const sized = container as unknown as {
        inspect(options: { size: true }): Promise<{ SizeRw?: number }>;
      };
      const { SizeRw: size = -1 } = await inTime(sized.inspect({ size: true }), {
        ...{ host, ms: ANSWER_MS, signal: done },
      });
      if (size < 0) throw new Error('the engine cannot count it');
      return size > limit;
    });
  }

  /** Repeats a check until it is true, or until it has failed too often in a row. */
  private async ask(done: AbortSignal, question: () => Promise<boolean>): Promise<void> {
    let failures = 0;
    while (failures < FAILURES) {
      const began = performance.now();
      try {
        if (await question()) return;
        failures = 0;
      } catch {
        failures += 1;
      }
      const took = performance.now() - began;
      await delay(Math.max(REST.leastMs, took * REST.times), undefined, { signal: done });
    }
  }
}
