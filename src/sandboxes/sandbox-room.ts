import { statfs } from 'node:fs/promises';
import { Inject, Injectable } from '@nestjs/common';
import { isMissing } from '../common/missing-file.js';
import { AppConfig } from '../config/app-config.js';
import type { SandboxDriver } from './driver/sandbox-driver.js';
import { SandboxError } from '../supervisor/sandbox-error.js';
import { SANDBOX_DRIVER } from './sandbox-host.js';

const DEFAULT_BYTES = 2 * 2 ** 30;
const DEFAULT_SHARE = 0.05;

/** A file system whose free space is below the watermark. */
export interface ShortOfDisk {
  folder: string;
  freeBytes: number;
  watermarkBytes: number;
}

/**
 * @param watermark bytes; `undefined`: 2 GiB or 5 % of the file system, whichever is less.
 * @returns the first folder whose file system is below the watermark. Ignores missing folders.
 * @throws SandboxError `unavailable` if the free space of a folder is unknown
 */
export async function findShortOfDisk(
  folders: readonly string[],
  watermark: number | undefined,
): Promise<ShortOfDisk | undefined> {
  if (watermark === 0) return undefined;
  for (const folder of new Set(folders)) {
    const stats = await statfs(folder).catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      const { code = '' } = error as NodeJS.ErrnoException;
      const message = `the free disk of the host cannot be told (${code}); see DISK_WATERMARK`;
      throw new SandboxError('unavailable', message, { cause: error });
    });
    if (stats === undefined) continue;
    const freeBytes = stats.bavail * stats.bsize;
    const watermarkBytes =
      watermark ?? Math.min(DEFAULT_BYTES, stats.blocks * stats.bsize * DEFAULT_SHARE);
    if (freeBytes < watermarkBytes) return { folder, freeBytes, watermarkBytes };
  }
  return undefined;
}

/** A message for operators. Clients see it too, so it does not name the folder. */
export function describeShortOfDisk({ freeBytes, watermarkBytes }: ShortOfDisk): string {
  const inMiB = (bytes: number): string => `${Math.floor(bytes / 2 ** 20)} MiB`;
  return `the host is short of disk: ${inMiB(freeBytes)} are free, and DISK_WATERMARK is ${inMiB(watermarkBytes)}`;
}

/** With fewer places left than this, sandboxes at rest make room: those that are being made now find one. */
const SPARE_PLACES = 64;

/** Whether this host has room for more sandboxes: disk above its watermark, and what the driver hands out. */
@Injectable()
export class SandboxRoom {
  constructor(
    private readonly config: AppConfig,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  /**
   * May a new sandbox be made? Does not concern those that are there.
   * @throws SandboxError `unavailable` with the cause
   */
  async check(signal: AbortSignal): Promise<void> {
    const { dataDir, cacheDir, diskWatermarkBytes } = this.config;
    const folders = [dataDir, cacheDir, ...(await this.storage(signal))];
    const short = await findShortOfDisk(folders, diskWatermarkBytes);
    if (short !== undefined) throw new SandboxError('unavailable', describeShortOfDisk(short));
    await this.driver.preflight({ signal });
    const places = await this.driver.places?.({ signal });
    if (places !== undefined && places.taken >= places.most) {
      throw new SandboxError('unavailable', `all ${places.most} places for sandboxes are taken`);
    }
  }

  /** Why idle sandboxes have to make room for others; `undefined` if they do not have to, or if it is unknown. */
  async pressure(signal: AbortSignal): Promise<string | undefined> {
    const { diskWatermarkBytes } = this.config;
    const folders = await this.storage(signal);
    const short = await findShortOfDisk(folders, diskWatermarkBytes).catch(() => undefined);
    if (short !== undefined) return describeShortOfDisk(short);
    const places = await this.driver.places?.({ signal });
    if (places === undefined || places.most - places.taken >= SPARE_PLACES) return undefined;
    return `${places.taken} of ${places.most} places for sandboxes are taken`;
  }

  /** An engine that does not say where it keeps things is not what this is about. */
  private async storage(signal: AbortSignal): Promise<readonly string[]> {
    return (await this.driver.storage?.({ signal }).catch(() => [])) ?? [];
  }
}
