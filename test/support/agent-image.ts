import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { createRequire } from 'node:module';
import { finished } from 'node:stream/promises';
import type { Container } from 'dockerode';
import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { engine, sandboxImage } from './docker-engine.js';

const PINS = 'src/runtimes/cli-pins.ts';
const INSTALLER = 'sandbox/install-clis.mjs';
const FOLDER = '/opt/agent-programs';
/** What this machine trusts besides the usual certificates, for example those of a proxy before the registry. */
const CERTIFICATES = process.env['NODE_EXTRA_CA_CERTS'];
const CERTIFICATE_FOLDER = '/opt/certificates';
const NPM = '/usr/local/lib/node_modules/npm';

/**
 * An image with Node, npm and all agent programs at their pinned versions, made as `sandbox/Dockerfile` makes it, from
 * the Debian of the tests. Made once on the engine and then kept.
 */
export async function agentImage(): Promise<string> {
  const base = await sandboxImage();
  const [pins, installer] = [PINS, INSTALLER].map((path) => readFileSync(path));
  const made = createHash('sha256').update(`${base}\n${process.version}\n`);
  for (const part of [pins, installer]) made.update(part ?? '');
  const [repo, tag] = ['agent-session-test-agents', made.digest('hex').slice(0, 16)];
  const name = `${repo}:${tag}`;
  const docker = engine();
  const there = await docker
    .getImage(name)
    .inspect()
    .catch(() => null);
  if (there !== null) return name;

  const container = await docker.createContainer({
    Image: base,
    // The registry of npm is reached as from this machine.
    HostConfig: { NetworkMode: 'host' },
    Env: Object.entries({
      ...npmSettings(),
      ...(CERTIFICATES && {
        NODE_EXTRA_CA_CERTS: `${CERTIFICATE_FOLDER}/${basename(CERTIFICATES)}`,
      }),
      HOME: '/root',
      PATH: '/usr/local/bin:/usr/bin:/bin',
    }).map(([key, value]) => `${key}=${value}`),
    Cmd: ['node', `${FOLDER}/install-clis.mjs`, `${FOLDER}/cli-pins.ts`, FOLDER, '/usr/local/bin'],
  });
  try {
    const files = pack();
    files.entry({ name: `${FOLDER.slice(1)}/cli-pins.ts` }, pins ?? '');
    files.entry({ name: `${FOLDER.slice(1)}/install-clis.mjs` }, installer ?? '');
    for (const program of ['npm', 'npx'])
      files.entry({
        name: `usr/local/bin/${program}`,
        type: 'symlink',
        linkname: `${NPM}/bin/${program}-cli.js`,
      });
    files.finalize();
    await container.putArchive(Readable.from(files), { path: '/' });
    await copy(container, dirname(process.execPath), 'node', '/usr/local/bin');
    if (CERTIFICATES !== undefined)
      await copy(container, dirname(CERTIFICATES), basename(CERTIFICATES), CERTIFICATE_FOLDER);
    const npm = dirname(createRequire(import.meta.url).resolve('npm/package.json'));
    await copy(container, dirname(npm), 'npm', dirname(NPM));
    await container.start();
    const { StatusCode: code } = (await container.wait()) as { StatusCode: number };
    if (code !== 0) {
      const output = await container.logs({ stdout: true, stderr: true, tail: 20 });
      throw new Error(`the agent programs were not installed: ${output.toString()}`);
    }
    await container.commit({ repo, tag });
  } finally {
    await container.remove({ force: true });
  }
  return name;
}

/** Puts a file or folder of this machine into a folder of the container, which is made if missing. */
async function copy(container: Container, from: string, name: string, to: string): Promise<void> {
  const parents = pack();
  parents.entry({ name: to.slice(1), type: 'directory' });
  parents.finalize();
  await container.putArchive(Readable.from(parents), { path: '/' });
  const tar = spawn('tar', ['-C', from, '--dereference', '-c', name], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await container.putArchive(tar.stdout, { path: to });
  await finished(tar.stdout, { writable: false }).catch(() => undefined);
}

/** The variables of this process that configure npm's registry and proxies. */
function npmSettings(): Record<string, string> {
  const names = /^(npm_config_(registry|proxy|https_proxy|noproxy)|https?_proxy|no_proxy)$/i;
  return Object.fromEntries(
    Object.entries(process.env).flatMap(([key, value]) =>
      names.test(key) && value !== undefined ? [[key, value]] : [],
    ),
  );
}
