import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { ifMissing } from '../../../../common/missing-file.js';
import { SandboxError } from '../../../../supervisor/sandbox-error.js';
import type { SandboxLogger } from '../../../../supervisor/sandbox-options.js';
import type { SharedSetup } from '../../sandbox-driver.js';
import { IDENTITY_FILES } from '../base-files.js';
import { mountedEntry, type DiskImages } from '../disk-images.js';
import type { Host } from '../host.js';
import type { Launcher } from '../launcher/launcher.js';
import type { SystemTemplate } from '../rootfs/ensure-rootfs.js';
import { SandboxFolder, type SandboxRecord, type SandboxStore } from '../sandbox-store.js';
import type { Layer, LayerStore } from './layer-store.js';
import { type Stack, stackedEntry, stackProgram } from './stacked-entry.js';

/** Gives the files of a layer to the sandbox's user, and leaves alone what the sandbox has itself. */
const TAKE = `
from=$1 to=$2 owner=$3 draft=$2/.taken
rm -rf -- "$draft" && mkdir -m 0700 -- "$draft" || exit 1
for part in workspace tmp; do
  cp -a -- "$from/$part" "$draft/" && chown -R -h "$owner:$owner" -- "$draft/$part" &&
  cp -a -n -- "$draft/$part/." "$to/files/$part/" || exit 1
done
rm -rf -- "$draft"`;

/** Copies what a setup has changed. Follows no link, because a tenant's script has made the files. */
const EXPORT = `
disk=$1 to=$2
for part in files/home files/workspace files/tmp system; do
  cp -a --sparse=always -- "$disk/$part" "$to/" || exit 1
done
chown -R -h 0:0 -- "$to/home" "$to/workspace" "$to/tmp" "$to/system"`;

/** Puts sandboxes on shared layers, where the host supports that: as root, with overlays and file systems of a fixed size. */
export class Stacks {
  private support: Promise<boolean> | undefined;

  constructor(
    private readonly parts: {
      host: Host;
      launcher: Launcher;
      store: SandboxStore;
      images: DiskImages;
      layers: LayerStore;
      logger?: SandboxLogger;
    },
  ) {}

  /** Does the host support layers? Found out by mounting some, once. */
  supported(): Promise<boolean> {
    this.support ??= this.obstacle().then((obstacle) => {
      if (obstacle === null) return true;
      this.parts.logger?.debug(`Environments are installed for each sandbox: ${obstacle}`);
      return false;
    });
    return this.support;
  }

  /** The name of the layer with the result of a setup. @param template the base system; `null` for the host's own */
  layerOf(setup: SharedSetup, template: string | null): string {
    const { scope, script, env, network } = setup;
    const variables = Object.entries(env).toSorted(([a], [b]) => (a < b ? -1 : 1));
    const base = template === null ? 'host' : basename(template);
    return this.parts.layers.name([scope, base, script, variables, network]);
  }

  /** The layers of a sandbox. @param layer what a setup has installed */
  async stackOf(
    template: SystemTemplate | null,
    layer: Layer | undefined,
    signal: AbortSignal,
  ): Promise<Stack> {
    const installed = (part: 'home' | 'system'): string[] => (layer ? [layer[part]] : []);
    return {
      layer: layer?.name ?? null,
      home: installed('home'),
      system:
        template === null
          ? []
          : [...installed('system'), await this.identity(template.path, signal), template.path],
    };
  }

  /** Copies the files of a layer that are no part of an overlay, before the sandbox's image is made or into it. */
  async take(layer: Layer, sandboxId: string, record: SandboxRecord): Promise<void> {
    const left = await Promise.all([layer.workspace, layer.tmp].map((path) => readdir(path)));
    if (left.flat().length === 0) return;
    const folder = this.parts.store.folder(sandboxId);
    const image = record.disk === 'image';
    await this.run([
      ...(image ? mountedEntry({ image: folder.image, target: folder.disk }) : []),
      ...['/bin/sh', '-c', TAKE, 'sh'],
      ...[join(layer.home, '..'), folder.disk, String(record.uid ?? 0)],
    ]);
  }

  /** Copies what a setup has changed in a sandbox into a folder. */
  async export(sandboxId: string, to: string): Promise<void> {
    const folder = this.parts.store.folder(sandboxId);
    await this.run([
      ...mountedEntry({ image: folder.image, target: folder.disk }),
      ...['/bin/sh', '-c', EXPORT, 'sh', folder.disk, to],
    ]);
  }

  private async run(argv: readonly string[]): Promise<void> {
    const { exitCode, output } = await this.parts.launcher.run({ argv });
    if (exitCode === 0) return;
    const cause = output.split('\n').at(-1) ?? '';
    throw new SandboxError('failed', `installed software could not be copied: ${cause}`);
  }

  /** A layer with the agent's account. */
  private async identity(template: string, signal: AbortSignal): Promise<string> {
    const { layers } = this.parts;
    const files: Record<string, string> = { hosts: IDENTITY_FILES['hosts'] ?? '' };
    for (const name of ['passwd', 'group']) {
      const own = IDENTITY_FILES[name]?.split('\n').find((line) => line.startsWith('agent:'));
      const base = await readFile(join(template, 'etc', name), 'utf8').catch(ifMissing(''));
      files[name] = `${base}${own}\n`;
    }
    const name = layers.name(['identity', files]);
    const layer =
      (await layers.find(name)) ??
      (await layers.make(name, {
        signal,
        build: async ({ draft }) => {
          const etc = join(draft, 'system', 'etc');
          await mkdir(etc, { recursive: true });
          for (const path of [join(draft, 'system'), etc]) await chmod(path, 0o755);
          for (const [file, text] of Object.entries(files)) {
            await writeFile(join(etc, file), text, { mode: 0o644 });
          }
        },
      }));
    return layer.system;
  }

  private async obstacle(): Promise<string | null> {
    const { host, images, launcher, store } = this.parts;
    if (!host.root || !host.mounts) return 'the service may not mount';
    if (!existsSync(stackProgram())) return 'the program that mounts layers was not built';
    if ((await images.limit()).kind !== 'hard') return 'sandboxes have no file system of their own';
    const probe = new SandboxFolder(
      join(store.stateDir, `.stack-${randomBytes(6).toString('hex')}`),
    );
    const lower = join(probe.path, 'lower');
    const own = join(probe.disk, 'files');
    try {
      for (const path of [
        ...[lower, join(probe.disk, 'work'), probe.home, probe.workspace, probe.tmp],
        ...['home', 'workspace', 'tmp'].map((name) => join(own, name)),
      ]) {
        await mkdir(path, { recursive: true });
      }
      await writeFile(join(lower, 'file'), '');
      const stack = { layer: null, home: [lower], system: [] };
      // Seen as somebody else's, and copied when it is changed.
      const test = '[ "$(stat -c %u "$0/file")" = 12345 ] && echo changed >"$0/file"';
      const argv = [...stackedEntry(probe, stack, 12_345), '/bin/sh', '-c', test, probe.home];
      const { exitCode, output } = await launcher.run({ argv });
      if (exitCode === 0) return null;
      return output.split('\n').at(-1) || 'overlays do not work';
    } finally {
      await rm(probe.path, { recursive: true, force: true });
    }
  }
}
