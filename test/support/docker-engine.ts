import { spawn } from 'node:child_process';
import { basename } from 'node:path';
import Docker from 'dockerode';
import { unless } from '../../src/sandboxes/docker/engine.js';
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

/** Names of everything on the engine that carries an installation's name. */
export async function leftovers(installation: string, host = DOCKER_HOST): Promise<string[]> {
  const docker = engine(host);
  const filters = { label: [`agent-session.installation=${installation}`] };
  const containers = await docker.listContainers({ all: true, filters });
  const { Volumes: volumes } = await docker.listVolumes({ filters });
  const networks = await docker.listNetworks({ filters });
  return [
    ...containers.flatMap(({ Names }) => Names),
    ...(volumes ?? []).map(({ Name }) => Name),
    ...networks.map(({ Name }) => Name),
  ].toSorted();
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
