import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const WHEEL = 'greeting-1.0-py3-none-any.whl';
const MAKE_WHEEL = `
import sys, zipfile
info = 'greeting-1.0.dist-info/'
files = {
    'greeting.py': 'text = "hello from pip"\\n',
    info + 'METADATA': 'Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n',
    info + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
}
files[info + 'RECORD'] = ''.join(name + ',,\\n' for name in [*files, info + 'RECORD'])
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
`;

/** An index of Python packages that has one, `greeting`, on all addresses of this host. */
export class PackageIndex {
  private constructor(private readonly server: Server) {}

  static async start(): Promise<PackageIndex> {
    const wheel = makeWheel();
    const server = createServer(({ url }, response) => {
      if (url === '/simple/greeting/') {
        response.setHeader('content-type', 'text/html').end(`<a href="/${WHEEL}">${WHEEL}</a>`);
      } else if (url === `/${WHEEL}`) {
        response.end(wheel);
      } else {
        response.writeHead(404).end();
      }
    });
    await once(server.listen(0, '0.0.0.0'), 'listening');
    return new PackageIndex(server);
  }

  /** Variables that make pip install from it. @param host its name */
  variables(host: string): Record<string, string> {
    const { port } = this.server.address() as AddressInfo;
    return { PIP_INDEX_URL: `http://${host}:${port}/simple/`, PIP_TRUSTED_HOST: host };
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

function makeWheel(): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'wheel-'));
  try {
    const path = join(folder, WHEEL);
    execFileSync('/usr/bin/python3', ['-c', MAKE_WHEEL, path]);
    return readFileSync(path);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
