import type Docker from 'dockerode';
import type { NetworkPolicy } from '../sandbox-driver.js';
import { SandboxError } from '../sandbox-error.js';
import { isId } from '../shared/ids.js';
import { RELAY_CONTROL, type ContainerSpecs } from './container-specs.js';
import {
  ensureContainer,
  environmentOf,
  inspectContainer,
  removeContainer,
  startContainer,
  startUntilReady,
} from './containers.js';
import { statusOf, unless } from './engine.js';
import { runExec } from './exec.js';
import { LABELS, type Names, SANDBOX_VOLUMES, SEED } from './names.js';
import { NOBODY } from './runtime-bundle.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';

/** A sandbox that runs. */
export interface RunningSandbox {
  container: Docker.Container;
  relay: Docker.Container;
  /** The id of the image that it was made of. */
  image: string;
  writableRoot: boolean;
  /** What its image sets for every program. */
  env: Readonly<Record<string, string>>;
}

/** Brings what an image with installed software has for home and workspace to the volumes that these are. */
const SEED_SCRIPT = `
for part in home/agent workspace; do
  if [ -d ${SEED}/$part ]; then cp -a --update -- ${SEED}/$part/. /$part/; fi
done`;

/**
 * The sandboxes of an installation on an engine. One is two containers and three volumes, all named for its session: the
 * relay, which holds the network namespace, and the agent's own. The latter is made last and so means that it is whole.
 */
export class DockerSandboxes {
  constructor(
    private readonly docker: Docker,
    private readonly names: Names,
    private readonly specs: ContainerSpecs,
    private readonly runtime: RuntimeOnEngine,
  ) {}

  /** Makes a sandbox, or what is missing of it, and starts it. */
  async create(
    sandboxId: string,
    options: { image: string; writableRoot: boolean; network: NetworkPolicy },
  ): Promise<void> {
    await this.runtime.ensure();
    if ((await this.find(sandboxId)) === null) {
      const relay = await ensureContainer(
        this.docker,
        this.specs.relay({
          name: this.names.relay(sandboxId),
          role: 'relay',
          sandboxId,
          network: options.network,
        }),
      );
      // One that is left of another attempt may have another policy, and be in any state.
      if ((await inspectContainer(relay))?.State.Running !== true) {
        await startUntilReady(relay, "the sandbox's network");
      }
      await this.makeContainer(sandboxId, this.names.sandbox(sandboxId), options);
    }
    await this.running(sandboxId);
  }

  /**
   * The sandbox, with both containers running: they do not after the engine was away.
   * @throws SandboxError `gone`
   */
  async running(sandboxId: string): Promise<RunningSandbox> {
    const info = await this.find(sandboxId);
    if (info === null) throw new SandboxError('gone', 'the sandbox does not exist any more');
    const container = this.docker.getContainer(info.Id);
    const relay = this.docker.getContainer(this.names.relay(sandboxId));
    const relayInfo = await inspectContainer(relay);
    if (relayInfo === null) throw new SandboxError('gone', "the sandbox's network is gone");
    if (!relayInfo.State.Running) {
      await this.runtime.ensure();
      // It is in a namespace that nobody serves any more.
      if (info.State.Running) await container.kill().catch(unless([404, 409], undefined));
      await startUntilReady(relay, "the sandbox's network");
      await startContainer(container);
    } else if (!info.State.Running) {
      await startContainer(container);
    }
    return {
      container,
      relay,
      image: info.Image,
      writableRoot: info.Config.Labels[LABELS.writableRoot] === 'true',
      env: environmentOf(info),
    };
  }

  async exists(sandboxId: string): Promise<boolean> {
    return (await this.find(sandboxId)) !== null;
  }

  /** The policy that holds; the given one from now on. */
  async policy(relay: Docker.Container, policy?: NetworkPolicy): Promise<NetworkPolicy> {
    const { exitCode, stdout, output } = await runExec(relay, {
      command: this.runtime.command(
        'docker/inside/relay-control.js',
        RELAY_CONTROL,
        policy === undefined ? '' : JSON.stringify(policy),
      ),
      user: `${NOBODY}:${NOBODY}`,
    });
    if (exitCode === 0) return JSON.parse(stdout) as NetworkPolicy;
    throw new SandboxError('failed', `the network policy cannot be applied: ${output}`);
  }

  /** Puts another image under a sandbox in which nothing runs. Its files in home and workspace stay. */
  async replaceImage(sandboxId: string, image: string): Promise<void> {
    const { container, writableRoot } = await this.running(sandboxId);
    const name = this.names.replacement(sandboxId);
    await removeContainer(this.docker.getContainer(name));
    const replacement = await this.makeContainer(sandboxId, name, { image, writableRoot });
    await startContainer(replacement);
    const seeded = await runExec(replacement, { command: ['/bin/bash', '-c', SEED_SCRIPT] });
    if (seeded.exitCode !== 0) {
      throw new SandboxError('failed', `installed software was not taken over: ${seeded.output}`);
    }
    await removeContainer(container);
    await replacement.rename({ name: this.names.sandbox(sandboxId) });
  }

  /** Everything that carries the session's label, however much of it there is. */
  async destroy(sandboxId: string): Promise<void> {
    const filters = this.names.filter(sandboxId);
    const containers = await this.docker.listContainers({ all: true, filters });
    await Promise.all(containers.map(({ Id }) => removeContainer(this.docker.getContainer(Id))));
    const { Volumes: volumes } = await this.docker.listVolumes({ filters });
    for (const { Name } of volumes ?? []) {
      await this.docker
        .getVolume(Name)
        .remove()
        .catch(unless([404], undefined));
    }
  }

  /** The sessions of which anything is left on the engine. */
  async list(): Promise<string[]> {
    const filters = this.names.filter();
    const containers = await this.docker.listContainers({ all: true, filters });
    const { Volumes: volumes } = await this.docker.listVolumes({ filters });
    const ids = [...containers, ...(volumes ?? [])].map((each) => each.Labels?.[LABELS.session]);
    return [...new Set(ids.filter((id) => id !== undefined && isId(id)))] as string[];
  }

  /** The agent's container; one that was about to replace it when it is the only one left. */
  private async find(sandboxId: string): Promise<Docker.ContainerInspectInfo | null> {
    const name = this.names.sandbox(sandboxId);
    const info = await inspectContainer(this.docker.getContainer(name));
    if (info !== null) return info;
    const replacement = this.docker.getContainer(this.names.replacement(sandboxId));
    if ((await inspectContainer(replacement)) === null) return null;
    await replacement.rename({ name }).catch(unless([404, 409], undefined));
    return inspectContainer(this.docker.getContainer(name));
  }

  private async makeContainer(
    sandboxId: string,
    name: string,
    { image, writableRoot }: { image: string; writableRoot: boolean },
  ): Promise<Docker.Container> {
    const volumes = Object.entries(SANDBOX_VOLUMES).map(
      ([part, target]) => [target, this.names.volume(sandboxId, part)] as const,
    );
    try {
      return await ensureContainer(
        this.docker,
        this.specs.sandbox({
          name,
          role: 'sandbox',
          sandboxId,
          image,
          relay: this.names.relay(sandboxId),
          writableRoot,
          volumes: Object.fromEntries(volumes),
        }),
      );
    } catch (error) {
      // The relay was removed meanwhile: somebody destroys the sandbox.
      if (statusOf(error) !== 404) throw error;
      throw new SandboxError('gone', 'the sandbox is being destroyed', { cause: error });
    }
  }
}
