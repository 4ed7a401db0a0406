import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import {
  type NetworkPolicy,
  type NpmProgram,
  type ProvideProgramsOptions,
} from '../sandbox-driver.js';
import { installPrograms, PROGRAM_FOLDER, PROGRAM_LINKS } from '../npm-programs.js';
import type { RunningSandbox } from './docker-sandboxes.js';
import type { Installation } from './installation.js';

const OPEN: NetworkPolicy = { mode: 'unrestricted', allowedHosts: [] };
const PARENT = '/opt';

/** The folder to copy from an image with programs, and its parent in the target image. */
const PROGRAM_FILES = { folder: PROGRAM_FOLDER, parent: PARENT } as const;

/** The folders and links that an image needs in addition to {@link PROGRAM_FILES}, as a tar archive of its root. */
function programLinks(programs: readonly NpmProgram[]): Readable {
  const archive = pack();
  for (const folder of [PARENT, PROGRAM_LINKS]) {
    archive.entry({ name: folder.slice(1), type: 'directory', mode: 0o755 });
  }
  for (const { bin } of programs) {
    archive.entry({
      name: `${PROGRAM_LINKS.slice(1)}/${bin}`,
      type: 'symlink',
      linkname: `${PROGRAM_FOLDER}/bin/${bin}`,
    });
  }
  archive.finalize();
  return Readable.from(archive);
}

/** Installs the programs that a sandbox lacks, in an image layer that all sandboxes share, and moves it to that image. */
export async function provideProgramLayer(
  sandbox: RunningSandbox,
  installation: Installation,
  options: ProvideProgramsOptions,
): Promise<void> {
  const { sandboxId, programs, signal, onSharedWork } = options;
  const { launches, remote, layers, preflight, sandboxes } = installation;
  const has = await remote.supervisor(sandboxId).hasPrograms({
    names: programs.map(({ bin }) => bin),
    environment: launches.environment(sandbox, 'agent'),
    signal,
  });
  if (has) return;
  // Installs on the operator's image, because the installation runs as root with an open network, which the tenant's
  // modified image must not get.
  const base = await layers.prepared(await preflight.check(signal), sandboxId);
  const layer = {
    image: base,
    script: `${installPrograms(
      programs,
      'the sandbox image has neither PROGRAMS nor npm to install it with: use the image of sandbox/Dockerfile',
    )}\nfind /tmp /var/tmp -mindepth 1 -delete`,
    profile: 'setup',
    env: {},
    network: OPEN,
  } as const;
  const what = programs.map(({ bin }) => bin).join(' and ');
  const built = await layers.built(layer, sandboxId, signal, () =>
    onSharedWork?.(`Installing ${what} for all sandboxes`),
  );
  onSharedWork?.(null);
  if ('failed' in built) {
    throw new SandboxError('failed', built.failed.outputTail.trim());
  }
  const image =
    sandbox.image === base
      ? built.image
      : await layers.copied(
          { from: built.image, onto: sandbox.image, ...PROGRAM_FILES },
          () => programLinks(programs),
          sandboxId,
        );
  await sandboxes.replaceImage(sandboxId, image);
}
