import type Docker from 'dockerode';
import { describeRefusal, type RefusalEvent } from '../../../supervisor/refusals.js';
import { CertificatesOnEngine } from './certificates-on-engine.js';
import { ContainerSpecs } from './container-specs.js';
import { runContainer } from './containers.js';
import { RemoteLaunches } from '../remote-launches.js';
import type { RemoteParts } from '../remote-sandbox-driver.js';
import { DockerLaunches, restart } from './docker-launches.js';
import { DockerSandboxes } from './docker-sandboxes.js';
import { connectEngine, unless } from './engine.js';
import { EngineQuotas, Preflight, RuntimeTrial } from './preflight.js';
import { textOf } from './exec.js';
import { GatewayOnEngine } from './gateway-on-engine.js';
import { ImageLayers } from './image-layers.js';
import { Names, RUNTIME_MOUNT, type DockerSandboxOptions } from './options.js';
import { RuntimeBundle } from './runtime-bundle.js';
import { RuntimeOnEngine } from './runtime-on-engine.js';
import { SetupDisk } from './setup-disk.js';

const REFUSALS_READ = 50;

/** Everything that belongs to one installation on one engine. */
export interface Installation extends RemoteParts {
  gateway: GatewayOnEngine;
  preflight: Preflight;
  sandboxes: DockerSandboxes;
  launches: DockerLaunches;
  layers: ImageLayers;
  quotas: EngineQuotas;
  /** The destinations that a sandbox was refused since the last call, as text, without duplicates. */
  readRefusals: (relay: Docker.Container) => Promise<string[]>;
  /** The hosts that package managers in sandboxes with an image install from. */
  readPackageHosts: (image: string) => Promise<readonly string[]>;
  /** The engine's data folder, as a path on its host. */
  root: (signal: AbortSignal) => Promise<string>;
}

/** Creates the components without sending requests to the engine. */
export async function connectInstallation(options: DockerSandboxOptions): Promise<Installation> {
  const docker = connectEngine(options.engine);
  const names = new Names(await options.installation());
  const runtime = new RuntimeOnEngine(docker, new RuntimeBundle());
  const company = options.gatewayConfig.network?.certificates;
  const certificates = new CertificatesOnEngine(docker, names, runtime, company);
  const gateway = new GatewayOnEngine(docker, names, runtime, certificates, {
    network: options.egressNetwork,
    config: options.gatewayConfig,
  });
  const specs = new ContainerSpecs(options, names, runtime, certificates);
  const quotas = new EngineQuotas(docker, names);
  const setupDisk = new SetupDisk(docker, options, specs, quotas);
  const launches = new DockerLaunches(options, runtime, setupDisk);
  const sandboxes = new DockerSandboxes(docker, names, specs, runtime, gateway, quotas);
  return {
    gateway,
    preflight: new Preflight(docker, options, new RuntimeTrial(docker, names, options)),
    sandboxes,
    launches,
    remote: new RemoteLaunches(
      {
        connect: (sandboxId) => launches.connect(() => sandboxes.running(sandboxId)),
        stop: async (sandboxId) => restart(await sandboxes.running(sandboxId)),
      },
      options.unknownStates,
    ),
    quotas,
    layers: new ImageLayers(docker, options, names, specs, gateway, launches, quotas),
    readRefusals,
    root: async (abortSignal) => {
      // The client accepts a signal here, although its types do not declare it.
      const asking = docker as unknown as {
        info(options: { abortSignal: AbortSignal }): Promise<{ DockerRootDir: string }>;
      };
      return (await asking.info({ abortSignal })).DockerRootDir;
    },
    readPackageHosts: async (image) => {
      await runtime.ensure();
      const { output } = await runContainer(docker, {
        Image: image,
        Labels: names.labels('build', ''),
        Entrypoint: runtime.command('sandboxes/driver/docker/inside/package-hosts.js'),
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
