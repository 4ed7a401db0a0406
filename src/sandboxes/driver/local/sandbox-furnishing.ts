import { join } from 'node:path';
import { requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import type { CreateSandboxOptions, ProvideProgramsOptions } from '../sandbox-driver.js';
import type { DiskImages } from './disk-images.js';
import type { Isolation } from './isolation.js';
import { systemFolders } from './host.js';
import type { LocalSandboxOptions } from './options.js';
import type { ProgramStore } from './programs.js';
import type { Layer, LayerStore } from './layers/layer-store.js';
import type { Stacks } from './layers/stacks.js';
import { systemTemplate, type SystemTemplate } from './rootfs/ensure-rootfs.js';
import type { SandboxRecord, SandboxStore } from './sandbox-store.js';
import type { Launcher } from './launcher/launcher.js';
import type { SandboxUsers } from './user-pool.js';

export interface FurnishingParts {
  options: LocalSandboxOptions;
  store: SandboxStore;
  users: SandboxUsers;
  images: DiskImages;
  isolation: Isolation;
  programs: ProgramStore;
  stacks: Stacks;
  layers: LayerStore;
  launcher: Launcher;
}

/** Puts into sandboxes what launches need: a kernel user, folders, a disk image, a system, files and programs. */
export class SandboxFurnishing {
  constructor(private readonly parts: FurnishingParts) {}

  /**
   * Makes the sandbox's folders and, unless it is whole already, its disk and its own system; then records it.
   * @param isBuild is it only made to build a layer?
   */
  async create(options: CreateSandboxOptions, isBuild = false): Promise<void> {
    const { sandboxId, network, writableRoot, signal } = options;
    const { store, users, isolation } = this.parts;
    const present = await store.read(sandboxId);
    const uid = present?.uid ?? (await users.claim(sandboxId, signal));
    let record: SandboxRecord = { ...(present ?? this.blank(uid, writableRoot)), network };
    const onLayers =
      present === null
        ? (writableRoot || isBuild || options.setup !== undefined) && (await this.usesLayers())
        : present.stack !== undefined;
    await store.makeFolders(sandboxId, uid, isolation.supervisorUser(record), onLayers);
    if (present === null) {
      record = onLayers
        ? await this.stack(sandboxId, record, options, isBuild)
        : await this.furnish(sandboxId, record, options);
    }
    requireNotAborted(signal);
    await store.write(sandboxId, record);
  }

  async prepareShared(options: {
    signal: AbortSignal;
    onProgress: (message: string) => void;
  }): Promise<void> {
    if (this.parts.options.isolation !== 'strict') return;
    await systemTemplate({
      templates: this.templates,
      signal: options.signal,
      onProgress: (message) => {
        if (message !== null) options.onProgress(message);
      },
    });
  }

  /** Installs programs for all sandboxes and gives them to this one. */
  async providePrograms(options: ProvideProgramsOptions): Promise<void> {
    const { programs, signal, onSharedWork } = options;
    await this.parts.programs.folder(programs, signal, () =>
      onSharedWork?.(
        `Installing ${programs.map(({ bin }) => bin).join(' and ')} for all sandboxes`,
      ),
    );
    onSharedWork?.(null);
    const { store } = this.parts;
    await store.write(options.sandboxId, {
      ...(await store.require(options.sandboxId)),
      programs,
    });
  }

  /** The record of a sandbox that does not exist yet. One that exists keeps its own system, whatever is requested later. */
  private blank(uid: number | null, writableRoot: boolean): Omit<SandboxRecord, 'network'> {
    const own = writableRoot && this.parts.options.isolation === 'strict';
    return { version: 1, uid, writableRoot: own, baseBytes: 0 };
  }

  private async usesLayers(): Promise<boolean> {
    return this.parts.options.isolation === 'strict' && (await this.parts.stacks.supported());
  }

  /** Puts a new sandbox on the base system and, if it is built, on the layer of its environment. */
  private async stack(
    sandboxId: string,
    record: SandboxRecord,
    options: CreateSandboxOptions,
    isVolatile: boolean,
  ): Promise<SandboxRecord> {
    const { store, images, stacks, layers, options: settings } = this.parts;
    const { setup, signal } = options;
    const template = record.writableRoot ? await this.template(options) : null;
    const layer = setup && (await layers.find(stacks.layerOf(setup, template?.path ?? null)));
    if (layer) await stacks.take(layer, sandboxId, record);
    const folder = store.folder(sandboxId);
    const hasImage = await images.make(folder.image, folder.disk, settings.limits.diskBytes);
    if (!hasImage) throw new SandboxError('failed', 'the disk of the sandbox cannot be made');
    return {
      ...record,
      disk: 'image',
      stack: {
        ...(await stacks.stackOf(template, layer, signal)),
        ...(isVolatile && { volatile: true }),
      },
      ...(template && { entries: systemFolders(template.path) }),
    };
  }

  /** Puts a sandbox in which nothing runs on the layer of its environment. */
  async putOn(
    sandboxId: string,
    record: SandboxRecord,
    layer: Layer,
    template: SystemTemplate | null,
    signal: AbortSignal,
  ): Promise<void> {
    const { store, stacks } = this.parts;
    await stacks.take(layer, sandboxId, record);
    await store.write(sandboxId, {
      ...record,
      stack: await stacks.stackOf(template, layer, signal),
    });
  }

  /** The base system, which is made if there is none yet. */
  template({
    signal,
    onSharedWork,
  }: Pick<CreateSandboxOptions, 'signal' | 'onSharedWork'>): Promise<SystemTemplate> {
    return systemTemplate({
      templates: this.templates,
      signal,
      onProgress: (message) => {
        if (message !== null) this.parts.options.logger?.debug(message);
        onSharedWork?.(message && `Preparing the base system: ${message}`);
      },
    });
  }

  /** Makes the disk image of a new sandbox where the host supports images, and copies a system into it if requested. */
  private async furnish(
    sandboxId: string,
    record: SandboxRecord,
    work: Pick<CreateSandboxOptions, 'signal' | 'onSharedWork'>,
  ): Promise<SandboxRecord> {
    const { store, images, options } = this.parts;
    const folder = store.folder(sandboxId);
    const template = record.writableRoot ? await this.template(work) : null;
    const room = options.limits.diskBytes + (template?.bytes ?? 0);
    const hasImage = await images.make(folder.image, folder.files, room);
    const furnished: SandboxRecord = { ...record, ...(hasImage && { disk: 'image' }) };
    if (template === null) return furnished;
    const used = await store.copyRootfs(sandboxId, template.path, furnished);
    return {
      ...furnished,
      baseBytes: hasImage ? used : template.bytes,
      entries: systemFolders(template.path),
    };
  }

  private get templates(): string {
    const { rootfsDir, stateDir } = this.parts.options;
    return rootfsDir ?? join(stateDir, '.rootfs');
  }
}
