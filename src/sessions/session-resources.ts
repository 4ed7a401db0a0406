import { posix } from 'node:path';
import { unprocessable } from '../common/errors.js';
import { asGitUrl, holdsUserInfo, httpUrlProblem } from '../common/http-url.js';
import type { FileResourceDto, GitRepositoryDto, ResourceDto } from './dto/create-session.dto.js';

/** A repository as it is stored and shown: without its token. */
export interface PublicRepository {
  type: 'git_repository';
  url: string;
  /** Relative to the workspace. */
  mount_path: string;
  checkout?: { type: 'branch'; name: string } | { type: 'commit'; sha: string };
}

/** A file as it is stored and shown: without its content. */
export interface PublicFile {
  type: 'file';
  /** Relative to the workspace. */
  path: string;
  /** Bytes. */
  size: number;
}

export type PublicResource = PublicRepository | PublicFile;

/** A file that is written to the sandbox before the first turn. */
export interface UploadedFile {
  /** Relative to the workspace. */
  path: string;
  content: Buffer;
}

export const isRepository = (resource: PublicResource): resource is PublicRepository =>
  resource.type === 'git_repository';

/** The `resources` of a new session, checked and normalised. */
export interface SessionResources {
  resources: PublicResource[];
  /** Tokens by the index of their resource. */
  tokens: Record<string, string>;
  files: UploadedFile[];
}

const WORKSPACE = '/workspace/';

/**
 * Checks and normalises the resources of a new session, and separates tokens and contents from the rest.
 * @throws DomainError 422 that says what is wrong.
 */
export function readResources(submitted: readonly ResourceDto[] = []): SessionResources {
  const files: UploadedFile[] = [];
  const resources = submitted.map((resource): PublicResource => {
    if (resource.type !== 'file') return readRepository(resource as GitRepositoryDto);
    const file = readFile(resource as FileResourceDto);
    files.push(file);
    return { type: 'file', path: file.path, size: file.content.length };
  });
  requireSeparateFiles(files, resources.filter(isRepository));
  const paths = resources.filter(isRepository).map((resource) => resource.mount_path);
  for (const [index, path] of paths.entries()) {
    if (paths.some((other, at) => at !== index && `${path}/`.startsWith(`${other}/`))) {
      throw unprocessable(
        `Two resources have the mount path ${JSON.stringify(path)}, or one lies in the other`,
      );
    }
  }
  const tokens = Object.fromEntries(
    submitted.flatMap((resource, index) => {
      const { authorization_token: token } = resource as Partial<GitRepositoryDto>;
      return token ? [[String(index), token]] : [];
    }),
  );
  return { resources, tokens, files };
}

function readRepository(resource: GitRepositoryDto): PublicRepository {
  const url = readUrl(resource.url);
  return {
    type: 'git_repository',
    url: asGitUrl(resource.url),
    mount_path: readPath(resource.mount_path ?? nameOf(url), 'The mount_path of a repository'),
    ...(resource.checkout && { checkout: readCheckout(resource.checkout) }),
  };
}

function readFile(file: FileResourceDto): UploadedFile {
  const path = readPath(file.path, 'The path of a file');
  const { content, content_base64: base64 } = file;
  if (typeof content === 'string' && typeof base64 !== 'string') {
    return { path, content: Buffer.from(content) };
  }
  if (typeof base64 !== 'string' || typeof content === 'string') {
    throw unprocessable('A file needs either content or content_base64');
  }
  if (base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) {
    throw unprocessable('The content_base64 of a file is not base64');
  }
  return { path, content: Buffer.from(base64, 'base64') };
}

/** Files may lie in repositories, but not in their place, and not below other files. */
function requireSeparateFiles(
  files: readonly UploadedFile[],
  repositories: readonly PublicRepository[],
): void {
  for (const [index, { path }] of files.entries()) {
    const isTaken =
      files.some((other, at) => at !== index && `${path}/`.startsWith(`${other.path}/`)) ||
      repositories.some(({ mount_path: mount }) => `${mount}/`.startsWith(`${path}/`));
    if (isTaken) {
      throw unprocessable(
        `Two resources have the path ${JSON.stringify(path)}, or one replaces it`,
      );
    }
  }
}

function readUrl(text: string): URL {
  if (!/^https?:\/\//i.test(text)) {
    throw unprocessable('The url of a repository must begin with https:// or http://');
  }
  if (holdsUserInfo(text)) {
    throw unprocessable(
      'The url of a repository must not hold credentials; use authorization_token',
    );
  }
  if (httpUrlProblem(text) !== undefined) {
    throw unprocessable('The url of a repository is not a valid URL');
  }
  return new URL(text);
}

function nameOf({ pathname }: URL): string {
  const name = pathname
    .replace(/\/+$/, '')
    .replace(/\.git$/, '')
    .split('/')
    .at(-1);
  return name && isPlainName(decoded(name)) ? decoded(name) : 'repository';
}

/** Empty for bytes that are not UTF-8. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}

function isPlainName(name: string): boolean {
  return /^[\w.-]{1,255}$/.test(name) && !/^\.+$/.test(name);
}

function readPath(text: string, what: string): string {
  const relative = text.startsWith(WORKSPACE) ? text.slice(WORKSPACE.length) : text;
  const path = posix.normalize(relative).replace(/\/+$/, '');
  const segments = path.split('/');
  if (path === '' || path === '.' || path.startsWith('/') || segments.includes('..')) {
    throw unprocessable(`${what} must lie below the workspace`);
  }
  if (/\p{Cc}/u.test(path) || segments.some((segment) => Buffer.byteLength(segment) > 255)) {
    throw unprocessable(`${what} is not a valid path`);
  }
  return path;
}

function readCheckout(
  checkout: NonNullable<GitRepositoryDto['checkout']>,
): PublicRepository['checkout'] {
  if (checkout.type === 'commit') {
    if (!checkout.sha || !/^[0-9a-f]{7,64}$/i.test(checkout.sha)) {
      throw unprocessable('A checkout of type commit needs a sha of 7 to 64 hexadecimal digits');
    }
    return { type: 'commit', sha: checkout.sha };
  }
  if (!checkout.name || checkout.name.startsWith('-') || /[\s~^:?*[\\]|\.\./.test(checkout.name)) {
    throw unprocessable('A checkout of type branch needs the name of a branch');
  }
  return { type: 'branch', name: checkout.name };
}
