import { readFile, readdir } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { packageRoot } from '../common/package-root.js';

const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Nearly as small as the best, in a tenth of its time: the first visitor waits for it. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } };
const brotli = promisify(brotliCompress);
const ENCODERS = {
  br: (bytes: Buffer): Promise<Buffer> => brotli(bytes, BROTLI),
  gzip: promisify(gzip) as (bytes: Buffer) => Promise<Buffer>,
} as const;

/** A file of the console in the encoding that suits a client best. */
export interface ConsoleAsset {
  type: string;
  /** `undefined`: not compressed. */
  encoding: keyof typeof ENCODERS | undefined;
  bytes: Buffer;
}

/** The files that the build made of `console/`. Their names are read once, so no other file can be requested. */
@Injectable()
export class ConsoleFiles implements OnModuleInit {
  private page: string | undefined;
  private readonly assets = new Map<string, Buffer>();
  private readonly compressed = new Map<string, Promise<Buffer>>();

  async onModuleInit(): Promise<void> {
    const folder = join(packageRoot(), 'dist', 'console');
    try {
      this.page = await readFile(join(folder, 'index.html'), 'utf8');
      for (const name of await readdir(join(folder, 'assets'))) {
        if (TYPES[extname(name)])
          this.assets.set(name, await readFile(join(folder, 'assets', name)));
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      new Logger('Console').warn(
        'The console is not built, so /console answers 404: npm run build',
      );
    }
  }

  /** The page with its placeholders; `undefined` if the console is not built. */
  get template(): string | undefined {
    return this.page;
  }

  /** @param accepted the client's `Accept-Encoding` */
  async asset(name: string, accepted = ''): Promise<ConsoleAsset | undefined> {
    const bytes = this.assets.get(name);
    const type = TYPES[extname(name)];
    if (bytes === undefined || type === undefined) return undefined;
    const encoding = /\bbr\b/.test(accepted)
      ? 'br'
      : /\bgzip\b/.test(accepted)
        ? 'gzip'
        : undefined;
    if (encoding === undefined) return { type, encoding, bytes };
    const key = `${encoding} ${name}`;
    let encoded = this.compressed.get(key);
    if (!encoded) {
      encoded = ENCODERS[encoding](bytes);
      this.compressed.set(key, encoded);
    }
    return { type, encoding, bytes: await encoded };
  }
}
