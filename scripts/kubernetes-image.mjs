/**
 * Makes an image of the built service for a test cluster without a registry, in the form of `docker save`: this Node with
 * its libraries, and dist/. A real image is made by the Dockerfile. Prints the name of the image, which has a digest of
 * its contents as the tag.
 *
 *   node scripts/kubernetes-image.mjs ARCHIVE
 */
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, realpathSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pack } from 'tar-stream';

const REPOSITORY = 'k8s.local/agent-session-service';
/** What the programs in pods import, with what these import. */
const PACKAGES = ['dns-packet', '@leichtgewicht/ip-codec'];
const [, , archive] = process.argv;
if (archive === undefined) throw new Error('usage: node scripts/kubernetes-image.mjs ARCHIVE');

/** The libraries that this Node has loaded, with the dynamic loader. */
const libraries = process.report
  .getReport()
  .sharedObjects.filter((path) => path.startsWith('/') && !path.endsWith('.node'));

const files = [
  ['usr/local/bin/node', realpathSync(process.execPath), 0o755],
  ...libraries.map((path) => [path.slice(1), realpathSync(path), 0o755]),
  ['app/package.json', 'package.json', 0o644],
  ...PACKAGES.flatMap((name) => below(join('node_modules', name))).map((path) => [
    `app/${path}`,
    path,
    0o644,
  ]),
  ...below('dist/src').map((path) => [`app/${path}`, path, 0o644]),
  ...below('dist/native').map((path) => [`app/${path}`, path, 0o755]),
];

function below(folder) {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile() && !path.endsWith('.map'))
    .toSorted();
}

/** A tar archive in memory. */
async function tar(entries) {
  const packed = pack();
  for (const [name, content, mode] of entries) {
    packed.entry({ name, mode, mtime: new Date(0) }, content);
  }
  packed.entry({ name: 'tmp', type: 'directory', mode: 0o1777, mtime: new Date(0) });
  packed.finalize();
  const pieces = [];
  for await (const piece of packed) pieces.push(piece);
  return Buffer.concat(pieces);
}

const sha256 = (data) => createHash('sha256').update(data).digest('hex');

const layer = await tar(files.map(([name, path, mode]) => [name, readFileSync(path), mode]));
const layerId = sha256(layer);
const config = JSON.stringify({
  architecture: { x64: 'amd64' }[process.arch] ?? process.arch,
  os: 'linux',
  config: { Env: ['PATH=/usr/local/bin:/usr/bin:/bin'], WorkingDir: '/app', Cmd: ['node'] },
  rootfs: { type: 'layers', diff_ids: [`sha256:${layerId}`] },
});
const name = `${REPOSITORY}:${layerId.slice(0, 12)}`;
const manifest = [
  { Config: `${sha256(config)}.json`, RepoTags: [name], Layers: [`${layerId}.tar`] },
];
writeFileSync(
  archive,
  await tar([
    ['manifest.json', JSON.stringify(manifest), 0o644],
    [`${sha256(config)}.json`, config, 0o644],
    [`${layerId}.tar`, layer, 0o644],
  ]),
);
process.stdout.write(`${name}\n`);
