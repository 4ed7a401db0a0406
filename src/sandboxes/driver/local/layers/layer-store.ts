import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { ifMissing } from '../../../../common/missing-file.js';
import { publishOnce, type BuildContext } from '../../../../common/publish-once.js';
import type { SandboxStore } from '../sandbox-store.js';

/** Increase this when the contents of a layer change. */
const FORMAT = 1;
const LAYER = 'layer';
const REMOVED = '.removed-';
/** A layer that was used this recently is kept: a sandbox that is being made may be about to use it. */
const SETTLED_MS = 60 * 60_000;

/** How many layers are kept that no sandbox uses, and for how long. */
export interface LayerCache {
  most: number;
  seconds: number;
}

/** A shared layer: what a setup has changed in the home and the system, and the files that it left elsewhere. */
export interface Layer {
  name: string;
  home: string;
  system: string;
  workspace: string;
  tmp: string;
}

/**
 * The layers of this host: one folder each, which is named for everything that determines its contents. A layer appears
 * when it is complete, and never changes. Only the service can enter the folder; sandboxes see their own layers alone.
 */
export class LayerStore {
  constructor(
    private readonly sandboxes: SandboxStore,
    private readonly cache: LayerCache,
  ) {}

  private get folder(): string {
    return join(this.sandboxes.stateDir, '.layers');
  }

  /** The name of a layer with these inputs. */
  name(inputs: readonly unknown[]): string {
    const text = JSON.stringify([FORMAT, process.arch, ...inputs]);
    return createHash('sha256').update(text).digest('hex').slice(0, 40);
  }

  /** The layer of this name, which counts as used now; `undefined` if there is none. */
  async find(name: string): Promise<Layer | undefined> {
    const path = join(this.folder, name);
    const now = new Date();
    const there = await utimes(path, now, now).then(() => true, ifMissing(false));
    return there && existsSync(join(path, LAYER)) ? layerAt(name, join(path, LAYER)) : undefined;
  }

  /**
   * Returns the layer, and makes it first if there is none. Callers in all processes of the host share one build; see
   * {@link publishOnce}. Builds of other layers do not wait for it.
   * @param options.build fills an empty folder
   */
  async make(
    name: string,
    options: {
      signal: AbortSignal;
      onProgress?: (message: string) => void;
      build: (context: BuildContext) => Promise<void>;
    },
  ): Promise<Layer> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const dir = join(this.folder, name);
    const path = await publishOnce({ ...options, dir, name: LAYER });
    return layerAt(name, path);
  }

  /** Removes the layers that no sandbox uses, if they are too old or too many. @returns their number */
  async prune(): Promise<number> {
    const names = await readdir(this.folder).catch(ifMissing<string[]>([]));
    const found = await Promise.all(
      names
        .filter((name) => !name.startsWith(REMOVED))
        .map(async (name) => {
          const stats = await stat(join(this.folder, name)).catch(ifMissing(undefined));
          return { name, usedAt: stats?.mtimeMs ?? Date.now() };
        }),
    );
    const used = await this.used();
    const oldest = Date.now() - this.cache.seconds * 1000;
    const doomed = found
      .filter(({ name }) => !used.some((path) => path.includes(name)))
      .toSorted((a, b) => b.usedAt - a.usedAt)
      .filter(({ usedAt }, i) => i >= this.cache.most || usedAt < oldest)
      .filter(({ usedAt }) => usedAt < Date.now() - SETTLED_MS);
    for (const { name } of doomed) {
      // Under another name first, so that no sandbox finds a layer of which a part is missing.
      const removed = join(this.folder, `${REMOVED}${name}`);
      await rename(join(this.folder, name), removed).catch(ifMissing(undefined));
    }
    // Includes those that a process left behind when it was killed.
    for (const name of await readdir(this.folder).catch(ifMissing<string[]>([]))) {
      if (name.startsWith(REMOVED)) {
        await rm(join(this.folder, name), { recursive: true, force: true });
      }
    }
    return doomed.length;
  }

  /** The layers of all sandboxes. @throws if one of their records cannot be read, so that nothing is removed */
  private async used(): Promise<string[]> {
    const records = await Promise.all(
      (await this.sandboxes.list()).map((id) => this.sandboxes.read(id)),
    );
    return records.flatMap((record) => [
      ...(record?.stack?.home ?? []),
      ...(record?.stack?.system ?? []),
    ]);
  }
}

function layerAt(name: string, path: string): Layer {
  return {
    name,
    home: join(path, 'home'),
    system: join(path, 'system'),
    workspace: join(path, 'workspace'),
    tmp: join(path, 'tmp'),
  };
}
