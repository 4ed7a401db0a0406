import { createHash, randomUUID } from 'node:crypto';
import type Docker from 'dockerode';
import type { NetworkPolicy, ScriptResult } from '../sandbox-driver.js';
import { SandboxError } from '../sandbox-error.js';
import { AGENT_ID, HOME, WORKSPACE } from '../shared/layout.js';
import type { ContainerSpecs } from './container-specs.js';
import {
  environmentOf,
  removeContainer,
  startContainer,
  startUntilReady,
  waitFor,
} from './containers.js';
import type { DockerLaunches, Profile } from './docker-launches.js';
import { unless } from './engine.js';
import { runExec } from './exec.js';
import { LABELS, type Names, SEED, SPOOL } from './names.js';
import type { DockerSandboxOptions } from './options.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';

/** Counts up when what a layer consists of changes. */
const FORMAT = 1;
/** How long an image without a name is left alone. */
const KEEP_NAMELESS_MS = 600_000;

/** What sandboxes need of an image, whatever it is: the agent's account and folders, with the right owner. */
const PREPARE = `
for program in bash setpriv mkfifo cp head ps; do
  command -v "$program" >/dev/null || { echo "the image has no $program"; exit 1; }
done
grep -q '^[^:]*:[^:]*:${AGENT_ID}:' /etc/passwd ||
  echo 'agent:x:${AGENT_ID}:${AGENT_ID}:agent:${HOME}:/bin/bash' >>/etc/passwd
grep -q '^[^:]*:[^:]*:${AGENT_ID}:' /etc/group || echo 'agent:x:${AGENT_ID}:' >>/etc/group
mkdir -p ${HOME} ${WORKSPACE} ${SPOOL} &&
chown ${AGENT_ID}:${AGENT_ID} ${HOME} ${WORKSPACE} && chmod 700 ${HOME} ${WORKSPACE} ${SPOOL}`;

/** Puts what was installed into home and workspace, which are volumes in sandboxes, where it is found again. */
const KEEP = `set -e
chown -R -h ${AGENT_ID}:${AGENT_ID} ${HOME} ${WORKSPACE}
for part in ${HOME} ${WORKSPACE}; do
  mkdir -p ${SEED}$part
  cp -a -- $part/. ${SEED}$part/
  find $part -mindepth 1 -delete
done
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*`;

/** What the engine also says of an image. */
interface Tagged {
  Metadata?: { LastTagTime?: string };
}

/** What a layer is made of; the same makes the same. */
export interface Layer {
  /** The id of the image below. */
  image: string;
  script: string;
  profile: Profile;
  env: Readonly<Record<string, string>>;
  network: NetworkPolicy;
}

/**
 * Images with installed software: each is an image below, with what one script did to it in a container of its own, in
 * which nothing of a session was. Kept for the next session that wants the same, up to a number and an age.
 */
export class ImageLayers {
  constructor(
    private readonly docker: Docker,
    private readonly options: DockerSandboxOptions,
    private readonly names: Names,
    private readonly specs: ContainerSpecs,
    private readonly runtime: RuntimeOnEngine,
    private readonly launches: DockerLaunches,
  ) {}

  /**
   * The image with an agent's account and folders.
   * @throws SandboxError `failed` for an image that lacks what a sandbox needs
   */
  async prepared(image: string, sandboxId: string): Promise<string> {
    const tag = this.tag(['prepared', image, PREPARE]);
    const known = await this.find(tag);
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
   * The image that a layer comes to; built first if there is none.
   * @returns its id, or the script's result where it did not end with 0
   */
  async built(
    layer: Layer,
    sandboxId: string,
    signal: AbortSignal,
  ): Promise<{ image: string } | { failed: ScriptResult }> {
    const env = Object.entries(layer.env).toSorted(([a], [b]) => (a < b ? -1 : 1));
    const { image, script, profile, network } = layer;
    const tag = this.tag([image, script, profile, env, network.mode, network.allowedHosts]);
    const known = await this.find(tag);
    if (known !== null) return { image: known };
    const result = await this.build(layer, sandboxId, tag, signal);
    await this.purge().catch((error: unknown) =>
      this.options.logger?.warn(`Images with software were not purged: ${String(error)}`),
    );
    return result;
  }

  /** Removes what is too old, and of the rest all but the last used ones. What is in use stays. */
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
        // Older engines have a name for none.
        tags: ((RepoTags as string[] | null) ?? []).filter((tag) => !tag.startsWith('<none>')),
        usedAt: await this.lastUsed(Id),
      })),
    );
    const oldest = Date.now() - seconds * 1000;
    const doomed = used
      .filter(({ tags }) => tags.length > 0)
      .toSorted((a, b) => b.usedAt - a.usedAt)
      .filter(({ usedAt }, i) => i >= images || usedAt < oldest);
    // Of two sessions that made the same at once, the later has the name. The other's may be about to be used.
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
    signal: AbortSignal,
  ): Promise<{ image: string } | { failed: ScriptResult }> {
    await this.runtime.ensure();
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
          volumes: {},
        }),
      );
      await startContainer(container);
      const env = environmentOf(await container.inspect());
      const result = await this.launches.script(
        { container, relay, image: layer.image, writableRoot: true, env },
        { ...layer, signal },
      );
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

  /** The engine makes the image as a whole or not at all. */
  private async commit(container: Docker.Container, tag: string): Promise<string> {
    const { Id } = (await container.commit({
      repo: this.names.cache,
      tag,
      _query: { container: container.id, repo: this.names.cache, tag },
      _body: {
        // Images hand their labels on to containers; this one is no session's.
        Labels: { ...this.names.labels('cache', ''), [LABELS.writableRoot]: '' },
        Entrypoint: [],
        Cmd: ['/bin/bash'],
      },
    })) as { Id: string };
    return Id;
  }

  /** The image's id, and it counts as used; `null` if there is none. */
  private async find(tag: string): Promise<string | null> {
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
