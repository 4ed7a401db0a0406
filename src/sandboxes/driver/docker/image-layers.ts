import { createHash, randomUUID } from 'node:crypto';
import type Docker from 'dockerode';
import { abandonable } from '../../../common/async.js';
import { builtTooLong, type NetworkPolicy, type ScriptResult } from '../sandbox-driver.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { AGENT_ID, HOME, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import type { ContainerSpecs } from './container-specs.js';
import { removeContainer, startContainer, startUntilReady, waitFor } from './containers.js';
import type { DockerLaunches, Profile } from './docker-launches.js';
import { runningSandbox } from './docker-sandboxes.js';
import { unless } from './engine.js';
import { runExec } from './exec.js';
import type { GatewayOnEngine } from './gateway-on-engine.js';
import { LABELS, type Names, SEED, SPOOL, type DockerSandboxOptions } from './options.js';
import type { EngineQuotas } from './preflight.js';

/** Increase this when the contents of a layer change. */
const FORMAT = 2;
/** How long an untagged image is kept. */
const KEEP_NAMELESS_MS = 600_000;

/** The setup that every image needs: the agent's account and folders with the right owner. */
const PREPARE = `
for program in bash cp head ps; do
  command -v "$program" >/dev/null || { echo "the image has no $program"; exit 1; }
done
grep -q '^[^:]*:[^:]*:${AGENT_ID}:' /etc/passwd ||
  echo 'agent:x:${AGENT_ID}:${AGENT_ID}:agent:${HOME}:/bin/bash' >>/etc/passwd
grep -q '^[^:]*:[^:]*:${AGENT_ID}:' /etc/group || echo 'agent:x:${AGENT_ID}:' >>/etc/group
mkdir -p ${HOME} ${WORKSPACE} ${SPOOL} /tmp /var/tmp && chmod 1777 /tmp /var/tmp &&
chown 0:0 / && chmod 755 / &&
chown ${AGENT_ID}:${AGENT_ID} ${HOME} ${WORKSPACE} && chmod 700 ${HOME} ${WORKSPACE} ${SPOOL}`;

/**
 * Copies the contents of the agent's folders into the image, because sandboxes mount volumes over these folders. Uses
 * the image's own programs, not ones that a setup script put earlier in the PATH.
 */
const KEEP = `set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
chown -R -h ${AGENT_ID}:${AGENT_ID} ${HOME} ${WORKSPACE} /tmp /var/tmp
for part in ${HOME} ${WORKSPACE} /tmp /var/tmp; do
  mkdir -p ${SEED}$part
  cp -a -- $part/. ${SEED}$part/
  find $part -mindepth 1 -delete
done
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*`;

/** Further fields of the engine's description of an image. */
interface Tagged {
  Metadata?: { LastTagTime?: string };
}

/** The inputs of a layer; the same inputs produce the same layer. */
export interface Layer {
  /** The id of the base image. */
  image: string;
  script: string;
  profile: Profile;
  env: Readonly<Record<string, string>>;
  network: NetworkPolicy;
  /** Only sandboxes of the same scope share the image. Default: all of the installation. */
  scope?: string | undefined;
}

type Built = { image: string } | { failed: ScriptResult };

/**
 * Images with installed software. Each is a base image with the changes of one script, which ran in its own container
 * without any data of a session. They are cached for later sessions with the same script, up to a number and an age.
 */
export class ImageLayers {
  /** The builds of this process, by tag. */
  private readonly building = new Map<string, Promise<Built>>();

  constructor(
    private readonly docker: Docker,
    private readonly options: DockerSandboxOptions,
    private readonly names: Names,
    private readonly specs: ContainerSpecs,
    private readonly gateway: GatewayOnEngine,
    private readonly launches: DockerLaunches,
    private readonly quotas: EngineQuotas,
  ) {}

  /**
   * Returns the image with the agent's account and folders.
   * @throws SandboxError `failed` if the image lacks something that a sandbox needs
   */
  async prepared(image: string, sandboxId: string): Promise<string> {
    const tag = this.tag(['prepared', image, PREPARE]);
    const known = await this.tagged(tag);
    if (known !== null) return known;
    const container = await this.docker.createContainer({
      name: this.buildName(sandboxId),
      Image: image,
      Labels: this.names.labels('build', sandboxId),
      Entrypoint: ['/bin/sh', '-c', PREPARE],
      Cmd: [],
      User: '0:0',
      HostConfig: { NetworkMode: 'none', SecurityOpt: ['no-new-privileges'] },
    });
    try {
      const { exitCode, output } = await waitFor(container);
      if (exitCode !== 0) {
        throw new SandboxError('failed', `${this.options.image} makes no sandbox: ${output}`);
      }
      return await this.commit(container, tag);
    } finally {
      await removeContainer(container);
    }
  }

  /**
   * Returns the image of a layer. If it does not exist, builds it, or waits for another caller that builds it, and calls
   * `onBuild` before and after that.
   * @returns its id, or the script's result if it did not end with 0
   */
  async built(
    layer: Layer,
    sandboxId: string,
    signal: AbortSignal,
    onBuild?: (building: boolean) => void,
  ): Promise<Built> {
    const tag = this.tagOf(layer);
    const known = await this.tagged(tag);
    if (known !== null) return { image: known };
    onBuild?.(true);
    try {
      return await this.builtOnce(layer, sandboxId, tag, signal);
    } finally {
      onBuild?.(false);
    }
  }

  /** The image of a layer, which counts as used now; `null` if there is none. */
  async find(layer: Layer): Promise<string | null> {
    return this.tagged(this.tagOf(layer));
  }

  private async builtOnce(
    layer: Layer,
    sandboxId: string,
    tag: string,
    signal: AbortSignal,
  ): Promise<Built> {
    for (let other = this.building.get(tag); other; other = this.building.get(tag)) {
      // If that caller gives up, this one builds.
      const built = await abandonable(
        other.catch(() => null),
        signal,
        () => new SandboxError('aborted', 'the build was aborted'),
      );
      if (built !== null) return built;
    }
    const building = this.build(layer, sandboxId, tag, signal);
    this.building.set(tag, building);
    try {
      return await building;
    } finally {
      this.building.delete(tag);
      await this.purge().catch((error: unknown) =>
        this.options.logger?.warn(`Images with software were not purged: ${String(error)}`),
      );
    }
  }

  private tagOf({ image, script, profile, env, network, scope }: Layer): string {
    const variables = Object.entries(env).toSorted(([a], [b]) => (a < b ? -1 : 1));
    const { mode, allowedHosts } = network;
    return this.tag([image, script, profile, variables, mode, allowedHosts, scope]);
  }

  /**
   * Creates an image with a folder of another image added. Runs no program of either image.
   * @param links is added to the image's root first, as a tar archive
   */
  async copied(
    { from, onto, folder, parent }: { from: string; onto: string; folder: string; parent: string },
    links: () => NodeJS.ReadableStream,
    sandboxId: string,
  ): Promise<string> {
    const tag = this.tag(['copied', from, onto, folder]);
    const known = await this.tagged(tag);
    if (known !== null) return known;
    const made: Docker.Container[] = [];
    const unstarted = async (image: string): Promise<Docker.Container> => {
      const container = await this.docker.createContainer({
        name: this.buildName(sandboxId),
        Image: image,
        Labels: this.names.labels('build', sandboxId),
        Entrypoint: ['/never-started'],
        Cmd: [],
        HostConfig: { NetworkMode: 'none' },
      });
      made.push(container);
      return container;
    };
    try {
      const source = await unstarted(from);
      const target = await unstarted(onto);
      await target.putArchive(links(), { path: '/' });
      await target.putArchive(await source.getArchive({ path: folder }), { path: parent });
      return await this.commit(target, tag);
    } finally {
      for (const container of made) await removeContainer(container);
    }
  }

  /** Removes images that are too old, and all but the most recently used of the rest. Images in use are kept. */
  async purge(): Promise<void> {
    const { images, seconds } = this.options.cache;
    const found = await this.docker.listImages({
      filters: {
        label: [`${LABELS.installation}=${this.names.installation}`, `${LABELS.role}=cache`],
      },
    });
    const used = await Promise.all(
      found.map(async ({ Id, RepoTags }) => ({
        id: Id,
        // Older engines return a placeholder name for untagged images.
        tags: ((RepoTags as string[] | null) ?? []).filter((tag) => !tag.startsWith('<none>')),
        usedAt: await this.lastUsed(Id),
      })),
    );
    const oldest = Date.now() - seconds * 1000;
    const doomed = used
      .filter(({ tags }) => tags.length > 0)
      .toSorted((a, b) => b.usedAt - a.usedAt)
      .filter(({ usedAt }, i) => i >= images || usedAt < oldest);
    // If two sessions built the same layer concurrently, the later one has the tag. The other's image may be about to
    // be used.
    const nameless = used.filter(
      ({ tags, usedAt }) => tags.length === 0 && usedAt < Date.now() - KEEP_NAMELESS_MS,
    );
    for (const name of [...doomed.flatMap(({ tags }) => tags), ...nameless.map(({ id }) => id)]) {
      await this.docker
        .getImage(name)
        .remove()
        .catch(unless([404, 409], undefined));
    }
  }

  private async lastUsed(id: string): Promise<number> {
    const info = await this.docker
      .getImage(id)
      .inspect()
      .catch(unless([404], null));
    const { LastTagTime } = (info as Tagged | null)?.Metadata ?? {};
    return Date.parse(LastTagTime ?? info?.Created ?? '') || 0;
  }

  private async build(
    layer: Layer,
    sandboxId: string,
    tag: string,
    given: AbortSignal,
  ): Promise<Built> {
    const limit = AbortSignal.timeout(this.options.buildLimitMs);
    const signal = AbortSignal.any([given, limit]);
    try {
      return await this.run(layer, sandboxId, tag, signal);
    } catch (error) {
      if (!limit.aborted || given.aborted) throw error;
      return { failed: builtTooLong(this.options.buildLimitMs) };
    }
  }

  private async run(
    layer: Layer,
    sandboxId: string,
    tag: string,
    signal: AbortSignal,
  ): Promise<Built> {
    await this.gateway.ensure();
    const name = this.buildName(sandboxId);
    const relay = await this.docker.createContainer(
      this.specs.relay({
        name: `${name}-relay`,
        role: 'build-relay',
        sandboxId,
        network: layer.network,
      }),
    );
    let container: Docker.Container | undefined;
    try {
      await startUntilReady(relay, "the sandbox's network");
      container = await this.docker.createContainer(
        this.specs.sandbox({
          name,
          role: 'build',
          sandboxId,
          image: layer.image,
          relay: `${name}-relay`,
          writableRoot: true,
          quotas: await this.quotas.supported(layer.image),
          // Anonymous, so that it is removed with the container. It is a mount, so that no script can replace it.
          volumes: { [SPOOL]: '' },
        }),
      );
      await startContainer(container);
      const sandbox = runningSandbox(container, relay, await container.inspect());
      const result = await this.launches.script(sandbox, { ...layer, signal });
      if (result.exitCode !== 0) return { failed: result };
      const kept = await runExec(container, { command: ['/bin/bash', '-c', KEEP], signal });
      if (kept.exitCode !== 0) {
        throw new SandboxError('failed', `installed software was not kept: ${kept.output}`);
      }
      return { image: await this.commit(container, tag) };
    } finally {
      if (container !== undefined) await removeContainer(container);
      await removeContainer(relay);
    }
  }

  /** The engine creates the image atomically. */
  private async commit(container: Docker.Container, tag: string): Promise<string> {
    const { Id } = (await container.commit({
      repo: this.names.cache,
      tag,
      _query: { container: container.id, repo: this.names.cache, tag },
      _body: {
        // Containers inherit the labels of their image, and this image belongs to no session.
        Labels: { ...this.names.labels('cache', ''), [LABELS.writableRoot]: '' },
        Entrypoint: [],
        Cmd: ['/bin/bash'],
      },
    })) as { Id: string };
    return Id;
  }

  /** Returns the image's id and marks it as used; `null` if there is none. */
  private async tagged(tag: string): Promise<string | null> {
    const { cache } = this.names;
    const image = this.docker.getImage(`${cache}:${tag}`);
    const info = await image.inspect().catch(unless([404], null));
    if (info === null) return null;
    await image.tag({ repo: cache, tag }).catch(unless([404], undefined));
    return info.Id;
  }

  private tag(inputs: readonly unknown[]): string {
    const text = JSON.stringify([FORMAT, KEEP, ...inputs]);
    return createHash('sha256').update(text).digest('hex').slice(0, 40);
  }

  private buildName(sandboxId: string): string {
    return `${this.names.sandbox(sandboxId)}-build-${randomUUID().slice(0, 8)}`;
  }
}
