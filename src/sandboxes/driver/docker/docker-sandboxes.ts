import type Docker from 'dockerode';
import type { NetworkPolicy } from '../sandbox-driver.js';
import { SandboxError, isId } from '../../../supervisor/sandbox-error.js';
import { AGENT_ID } from '../../../supervisor/sandbox-options.js';
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
import type { EngineQuotas } from './preflight.js';
import { runExec } from './exec.js';
import type { GatewayOnEngine } from './gateway-on-engine.js';
import {
  CERTIFICATES_MOUNT,
  LABELS,
  type Names,
  RUNTIME_MOUNT,
  SANDBOX_VOLUMES,
  SEED,
} from './options.js';
import { NOBODY } from './runtime-bundle.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';

/** A running sandbox. */
export interface RunningSandbox {
  container: Docker.Container;
  relay: Docker.Container;
  /** The id of its image. */
  image: string;
  writableRoot: boolean;
  /** The time when its container was created, in milliseconds since 1970. */
  createdAt: number;
  /** The environment variables that its image sets. */
  env: Readonly<Record<string, string>>;
  /** Whether it has the operator's certificates. */
  hasCertificates: boolean;
  /** The volumes that it can write to. */
  volumes: readonly string[];
}

/** Describes a running container as a sandbox. */
export function runningSandbox(
  container: Docker.Container,
  relay: Docker.Container,
  info: Docker.ContainerInspectInfo,
): RunningSandbox {
  const written = info.Mounts.filter(({ Type, RW }) => Type === 'volume' && RW);
  return {
    container,
    relay,
    image: info.Image,
    writableRoot: info.Config.Labels[LABELS.writableRoot] === 'true',
    createdAt: Date.parse(info.Created),
    env: environmentOf(info),
    hasCertificates: info.Mounts.some(({ Destination }) => Destination === CERTIFICATES_MOUNT),
    volumes: [...new Set(written.map(({ Name = '' }) => Name))],
  };
}

/** Copies the files that an image with installed software has for the agent's folders into their volumes. */
const SEED_SCRIPT = `
for part in home/agent workspace tmp var/tmp; do
  if [ -d ${SEED}/$part ]; then
    find ${SEED}/$part -mindepth 1 -maxdepth 1 -exec cp -a --update -t /$part -- {} + || exit 1
  fi
done`;

/**
 * The sandboxes of an installation on an engine. Each consists of two containers and four volumes, all named after its
 * session: the relay, which holds the network namespace, and the agent's own container. The agent's container is
 * created last, so its existence means that the sandbox is complete.
 */
export class DockerSandboxes {
  constructor(
    private readonly docker: Docker,
    private readonly names: Names,
    private readonly specs: ContainerSpecs,
    private readonly runtime: RuntimeOnEngine,
    private readonly gateway: GatewayOnEngine,
    private readonly quotas: EngineQuotas,
  ) {}

  /** Creates a sandbox, or its missing parts, and starts it. */
  async create(
    sandboxId: string,
    options: { image: string; writableRoot: boolean; network: NetworkPolicy },
  ): Promise<void> {
    await this.gateway.ensure();
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
      // A relay of an earlier attempt may have another policy and be in any state.
      if ((await inspectContainer(relay))?.State.Running !== true) {
        await startUntilReady(relay, "the sandbox's network");
      }
      await this.makeContainer(sandboxId, this.names.sandbox(sandboxId), options);
    }
    await this.running(sandboxId);
  }

  /**
   * Returns the sandbox with both containers running. They may not be running if the engine was restarted.
   * @throws SandboxError `gone`
   */
  async running(sandboxId: string): Promise<RunningSandbox> {
    const info = await this.find(sandboxId);
    if (info === null) throw new SandboxError('gone', 'the sandbox does not exist any more');
    if (!info.Mounts.some(({ Destination }) => Destination === RUNTIME_MOUNT)) {
      // Kills the container. An earlier version created it with its runtime at another path, where this version cannot
      // end launches.
      await this.docker
        .getContainer(info.Id)
        .kill()
        .catch(unless([404, 409], undefined));
      throw new SandboxError('gone', 'the sandbox was made by an earlier version');
    }
    const container = this.docker.getContainer(info.Id);
    const relay = this.docker.getContainer(this.names.relay(sandboxId));
    const relayInfo = await inspectContainer(relay);
    if (relayInfo === null) throw new SandboxError('gone', "the sandbox's network is gone");
    if (!relayInfo.State.Running) {
      if (!this.isServed(relayInfo)) {
        throw new SandboxError('gone', 'the sandbox was made by an earlier version');
      }
      await this.gateway.ensure();
      // Its network namespace is not served any more.
      if (info.State.Running) await container.kill().catch(unless([404, 409], undefined));
      await startUntilReady(relay, "the sandbox's network");
      await startContainer(container);
    } else if (!info.State.Running) {
      await startContainer(container);
    }
    return runningSandbox(container, relay, info);
  }

  /**
   * Whether there is a sandbox that can take launches. One of an earlier version does not reach the gateway; what runs in
   * it may end there.
   */
  async exists(sandboxId: string): Promise<boolean> {
    if ((await this.find(sandboxId)) === null) return false;
    const relay = await inspectContainer(this.docker.getContainer(this.names.relay(sandboxId)));
    // A sandbox without its relay is found to be gone when it is used.
    return relay === null || this.isServed(relay);
  }

  /** Returns the current policy, or sets the given one. */
  async policy(relay: Docker.Container, policy?: NetworkPolicy): Promise<NetworkPolicy> {
    const { exitCode, stdout, output } = await runExec(relay, {
      command: this.runtime.command(
        'sandboxes/driver/docker/inside/relay-control.js',
        RELAY_CONTROL,
        policy === undefined ? '' : JSON.stringify(policy),
      ),
      user: `${NOBODY}:${NOBODY}`,
    });
    if (exitCode === 0) return JSON.parse(stdout) as NetworkPolicy;
    throw new SandboxError('failed', `the network policy cannot be applied: ${output}`);
  }

  /** Replaces the image of a sandbox in which nothing runs. Files in home and workspace are kept. */
  async replaceImage(sandboxId: string, image: string): Promise<void> {
    const { container, writableRoot } = await this.running(sandboxId);
    const name = this.names.replacement(sandboxId);
    await removeContainer(this.docker.getContainer(name));
    const replacement = await this.makeContainer(sandboxId, name, { image, writableRoot });
    await startContainer(replacement);
    await this.takeOver(replacement, writableRoot);
    await removeContainer(container);
    await replacement.rename({ name: this.names.sandbox(sandboxId) });
  }

  /** Copies the files that a new sandbox's image has for the agent's folders into them. */
  async seed(sandboxId: string): Promise<void> {
    const { container, writableRoot } = await this.running(sandboxId);
    await this.takeOver(container, writableRoot);
  }

  private async takeOver(container: Docker.Container, writableRoot: boolean): Promise<void> {
    if (writableRoot) await this.ownRoot(container);
    // Runs as the agent, because a tenant's script may have written the image's programs.
    const seeded = await runExec(container, {
      command: ['/bin/bash', '--norc', '-c', SEED_SCRIPT],
      user: `${AGENT_ID}:${AGENT_ID}`,
    });
    if (seeded.exitCode === 0) return;
    throw new SandboxError('failed', `installed software was not taken over: ${seeded.output}`);
  }

  /** Kills all processes in a sandbox, including those that a script left behind as root. */
  async restart(container: Docker.Container): Promise<void> {
    await container.kill().catch(unless([404, 409], undefined));
    await startContainer(container);
    await this.ownRoot(container);
  }

  private async ownRoot(container: Docker.Container): Promise<void> {
    const { exitCode, output } = await runExec(container, {
      command: this.runtime.command('supervisor/own-files.js', 'own'),
    });
    if (exitCode !== 0) throw new SandboxError('failed', `the system's root: ${output}`);
  }

  /** Removes everything with the session's label, even from an incomplete sandbox. */
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

  /** The sessions that have anything left on the engine. */
  async list(): Promise<string[]> {
    const filters = this.names.filter();
    const containers = await this.docker.listContainers({ all: true, filters });
    const { Volumes: volumes } = await this.docker.listVolumes({ filters });
    const ids = [...containers, ...(volumes ?? [])].map((each) => each.Labels?.[LABELS.session]);
    return [...new Set(ids.filter((id) => id !== undefined && isId(id)))] as string[];
  }

  /** Whether the gateway serves a relay. */
  private isServed({ Mounts }: Docker.ContainerInspectInfo): boolean {
    return Mounts.some(({ Name }) => Name === this.names.gateway);
  }

  /** The agent's container. If only its intended replacement is left, that one. */
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
    const volumes = Object.entries(SANDBOX_VOLUMES).flatMap(([part, targets]) =>
      targets.map((target) => [target, this.names.volume(sandboxId, part)] as const),
    );
    const quotas = await this.quotas.supported(image);
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
          quotas,
          volumes: Object.fromEntries(volumes),
        }),
      );
    } catch (error) {
      // The relay was removed in the meantime, so another process is destroying the sandbox.
      if (statusOf(error) !== 404) throw error;
      throw new SandboxError('gone', 'the sandbox is being destroyed', { cause: error });
    }
  }
}
