import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A registry on loopback with one package, whose install script leaves a trace if it is ever run. */
export class NpmRegistry {
  /** How often the package itself was fetched. */
  downloads = 0;
  private server: Server | undefined;

  constructor(
    readonly name: string,
    private readonly program: string,
    /** Where clients reach it, with a slash at the end. Default: at {@link url}. */
    private readonly front: () => string = () => this.url,
  ) {}

  get url(): string {
    const address = this.server?.address() as AddressInfo | undefined;
    return `http://127.0.0.1:${address?.port}/`;
  }

  async start(): Promise<this> {
    const manifest = {
      name: this.name,
      version: '1.2.3',
      scripts: { postinstall: 'touch ran-a-script' },
      bin: { [this.name]: 'program.sh' },
    };
    const tarball = pack({ 'package.json': JSON.stringify(manifest), 'program.sh': this.program });
    const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`;
    this.server = createServer((request, response) => {
      response.setHeader('connection', 'close');
      if (request.url === `/${this.name}`) {
        const dist = { tarball: `${this.front()}${this.name}.tgz`, integrity };
        const versions = { '1.2.3': { ...manifest, dist } };
        response.setHeader('content-type', 'application/json');
        response.end(JSON.stringify({ ...manifest, 'dist-tags': { latest: '1.2.3' }, versions }));
      } else if (request.url === `/${this.name}.tgz`) {
        this.downloads += 1;
        response.end(tarball);
      } else {
        response.writeHead(404).end('{}');
      }
    });
    await new Promise<void>((resolve) => void this.server?.listen(0, '127.0.0.1', resolve));
    return this;
  }

  async stop(): Promise<void> {
    await new Promise((resolve) => void this.server?.close(resolve));
  }
}

function pack(files: Readonly<Record<string, string>>): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'pack-'));
  try {
    mkdirSync(join(folder, 'package'));
    for (const [name, content] of Object.entries(files))
      writeFileSync(join(folder, 'package', name), content);
    const archive = join(folder, 'package.tgz');
    spawnSync('tar', ['-czf', archive, '-C', folder, 'package']);
    return readFileSync(archive);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
