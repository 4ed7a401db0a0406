import type Docker from 'dockerode';
import { describeRefusal, type RefusalEvent } from '../shared/relay/refusal-log.js';
import { ContainerSpecs } from './container-specs.js';
import { runContainer } from './containers.js';
import { DockerLaunches } from './docker-launches.js';
import { DockerSandboxes } from './docker-sandboxes.js';
import { connectEngine, unless } from './engine.js';
import { textOf } from './exec.js';
import { ImageLayers } from './image-layers.js';
import { Names, RUNTIME_MOUNT } from './names.js';
import type { DockerSandboxOptions } from './options.js';
import { Preflight } from './preflight.js';
import { RuntimeBundle } from './runtime-bundle.js';
import { RuntimeOnEngine } from './runtime-on-engine.js';
import { RuntimeTrial } from './runtime-trial.js';

const REFUSALS_READ = 50;
const DEFAULT_EGRESS_NETWORK = 'host';

/** All that belongs to one installation on one engine. */
export interface Installation {
  preflight: Preflight;
  sandboxes: DockerSandboxes;
  launches: DockerLaunches;
  layers: ImageLayers;
  /** What a sandbox was not let reach since the last time that this was asked, in words, each once. */
  readRefusals: (relay: Docker.Container) => Promise<string[]>;
  /** The hosts from which package managers install in sandboxes of an image. */
  readPackageHosts: (image: string) => Promise<readonly string[]>;
}

/** Puts the parts together; asks the engine for nothing yet. */
export async function connectInstallation(options: DockerSandboxOptions): Promise<Installation> {
  const docker = connectEngine(options.engine);
  const names = new Names(await options.installation());
  const runtime = new RuntimeOnEngine(
    docker,
    new RuntimeBundle(),
    options.egressNetwork ?? DEFAULT_EGRESS_NETWORK,
  );
  const specs = new ContainerSpecs(options, names, runtime);
  const launches = new DockerLaunches(options, runtime);
  return {
    preflight: new Preflight(docker, options, new RuntimeTrial(docker, names, options)),
    sandboxes: new DockerSandboxes(docker, names, specs, runtime),
    launches,
    layers: new ImageLayers(docker, options, names, specs, runtime, launches),
    readRefusals,
    readPackageHosts: async (image) => {
      await runtime.ensure();
      const { output } = await runContainer(docker, {
        Image: image,
        Labels: names.labels('build', ''),
        Entrypoint: runtime.command('docker/inside/package-hosts.js'),
        Cmd: [],
        User: '65534:65534',
        HostConfig: {
          NetworkMode: 'none',
          CapDrop: ['ALL'],
          SecurityOpt: ['no-new-privileges'],
          Mounts: [
            { Type: 'volume', Source: runtime.volume, Target: RUNTIME_MOUNT, ReadOnly: true },
          ],
        },
      });
      const listed = /\[.*\]/s.exec(output)?.[0];
      if (listed === undefined) throw new Error(`the image does not say its mirrors: ${output}`);
      return JSON.parse(listed) as string[];
    },
  };
}

async function readRefusals(relay: Docker.Container): Promise<string[]> {
  const log = await relay
    .logs({ stdout: true, stderr: false, tail: REFUSALS_READ })
    .catch(unless([404, 409], Buffer.alloc(0)));
  const events = textOf(log)
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((text) => JSON.parse(text) as RefusalEvent);
  return [...new Set(events.map(describeRefusal))];
}
