import { spawn } from 'node:child_process';
import { basename } from 'node:path';
import Docker from 'dockerode';
import { unless } from '../../src/sandboxes/driver/docker/engine.js';
import type { SandboxContents } from './planted-secrets.js';
import { abandoned, forget } from './installation-notes.js';
import { sharedRootfs } from '../integration/rootfs/shared-rootfs.js';

/** The engine that tests use: a unix socket. */
export const DOCKER_HOST = process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock';

export function engine(host = DOCKER_HOST): Docker {
  return new Docker({ socketPath: host.replace(/^unix:\/\//, '') });
}

/** For tests: removes what runs that were killed have left on the engine, once for each test file. */
let tidied: Promise<void> | undefined;
export function removeAbandoned(): Promise<void> {
  tidied ??= abandoned(DOCKER_HOST).then(async (installations) => {
    for (const installation of installations) await removeInstallation(installation);
  });
  return tidied;
}

const images = new Map<string, Promise<string>>();

/** An image of the Debian that local sandboxes install software into, made once on each engine and then kept. */
export function sandboxImage(host = DOCKER_HOST): Promise<string> {
  const known = images.get(host) ?? importImage(host);
  images.set(host, known);
  return known;
}

async function importImage(host: string): Promise<string> {
  const docker = engine(host);
  const rootfs = await sharedRootfs();
  const name = `agent-session-test:${basename(rootfs)}`;
  const there = await docker
    .getImage(name)
    .inspect()
    .catch(() => null);
  if (there !== null) return name;
  const tar = spawn('tar', ['-C', rootfs, '-c', '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [repo, tag] = name.split(':');
  const progress = await docker.importImage(tar.stdout, { repo, tag });
  for await (const line of progress as AsyncIterable<Buffer>) {
    if (line.includes('"error"')) throw new Error(line.toString());
  }
  return name;
}

export interface Supervisor {
  container: string;
  /** As the engine's machine counts. */
  pid: number;
  command: string;
}

/** The gateway ends some time after the last sandbox and is for all of them, so it does not count as left over. */
const isGateway = ({ Labels }: { Labels: Record<string, string> | null }): boolean =>
  Labels?.['agent-session.role'] === 'gateway';

/** Names of everything on the engine that carries an installation's name, besides its gateway. */
export async function leftovers(installation: string, host = DOCKER_HOST): Promise<string[]> {
  const docker = engine(host);
  const filters = { label: [`agent-session.installation=${installation}`] };
  const containers = await docker.listContainers({ all: true, filters });
  const { Volumes: volumes } = await docker.listVolumes({ filters });
  const networks = await docker.listNetworks({ filters });
  return [
    ...containers.filter((each) => !isGateway(each)).flatMap(({ Names }) => Names),
    ...(volumes ?? []).filter((each) => !isGateway(each)).map(({ Name }) => Name),
    ...networks.map(({ Name }) => Name),
  ].toSorted();
}

/** The files that an installation's sandboxes have written, and their processes, without those of its gateway. */
export async function contentsOnEngine(installation: string): Promise<SandboxContents> {
  const docker = engine();
  const filters = { label: [`agent-session.installation=${installation}`] };
  const found = (await docker.listContainers({ filters })).filter((each) => !isGateway(each));
  const each = await Promise.all(
    found.map(async ({ Id }) => {
      const container = docker.getContainer(Id);
      const [{ GraphDriver, Mounts, State }, { Processes }] = await Promise.all([
        container.inspect(),
        (container.top({ ps_args: '-o pid' }) as Promise<{ Processes: string[][] }>)
          // It has just started, or ended.
          .catch(unless([404, 409], { Processes: [] })),
      ]);
      const { UpperDir } = GraphDriver.Data as { UpperDir?: string };
      if (UpperDir === undefined)
        throw new Error('needs an engine with the storage driver overlay2');
      const volumes = Mounts.filter(({ Type }) => Type === 'volume').map(({ Source }) => Source);
      return {
        // What is mounted inside is only seen from there.
        folders: [
          UpperDir,
          ...volumes,
          `/proc/${State.Pid}/root/tmp`,
          `/proc/${State.Pid}/root/dev/shm`,
        ],
        pids: Processes.map(([pid]) => Number(pid)),
      };
    }),
  );
  return {
    folders: each.flatMap(({ folders }) => folders),
    pids: each.flatMap(({ pids }) => pids),
  };
}

/** The process of an installation's gateway, which must be running, as the engine's machine counts. */
export async function gatewayOnEngine(installation: string): Promise<number> {
  const docker = engine();
  const filters = { label: [`agent-session.installation=${installation}`] };
  const [gateway, ...others] = (await docker.listContainers({ filters })).filter(isGateway);
  if (gateway === undefined || others.length > 0) throw new Error('not one gateway runs');
  return (await docker.getContainer(gateway.Id).inspect()).State.Pid;
}

/** The supervisors of turns and scripts that run in an installation's containers, each with where and what it is. */
export async function supervisors(installation: string): Promise<Supervisor[]> {
  const docker = engine();
  const filters = { label: [`agent-session.installation=${installation}`] };
  const found = await Promise.all(
    (await docker.listContainers({ filters })).map(async ({ Id: container }) => {
      const { Processes } = (await docker
        .getContainer(container)
        .top({ ps_args: '-o pid,args' })
        // It ended meanwhile, or is no more.
        .catch(() => ({ Processes: null }))) as { Processes: string[][] | null };
      return (Processes ?? []).map(([pid = '', ...args]) => ({
        container,
        pid: Number(pid),
        command: args.join(' '),
      }));
    }),
  );
  return found.flat().filter(({ command }) => command.includes('/supervisor/main.js'));
}

/** Removes everything that carries an installation's name, its images with software as well. */
export async function removeInstallation(installation: string): Promise<void> {
  const docker = engine();
  const filters = { label: [`agent-session.installation=${installation}`] };
  for (const { Id } of await docker.listContainers({ all: true, filters })) {
    await docker.getContainer(Id).remove({ force: true });
  }
  const { Volumes: volumes } = await docker.listVolumes({ filters });
  for (const { Name } of volumes ?? []) await docker.getVolume(Name).remove();
  for (let rounds = 0; ; rounds += 1) {
    const left = await docker.listImages({ filters });
    if (left.length === 0) break;
    if (rounds === 20) throw new Error(`images are left: ${JSON.stringify(left)}`);
    for (const { Id } of left) {
      // Not before those that are made of it.
      await docker
        .getImage(Id)
        .remove({ force: true })
        .catch(unless([404, 409], undefined));
    }
  }
  await forget(installation);
}
