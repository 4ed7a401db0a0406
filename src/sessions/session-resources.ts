import { posix } from 'node:path';
import { unprocessable } from '../common/errors.js';
import type { GitRepositoryDto } from './dto/create-session.dto.js';

/** A repository as it is stored and shown: without its token. */
export interface PublicResource {
  type: 'git_repository';
  url: string;
  /** Relative to the workspace. */
  mount_path: string;
  checkout?: { type: 'branch'; name: string } | { type: 'commit'; sha: string };
}

/** What `resources` of a new session comes down to. */
export interface SessionResources {
  resources: PublicResource[];
  /** Tokens by the index of their resource. */
  tokens: Record<string, string>;
}

const WORKSPACE = '/workspace/';

/**
 * Checks and normalises the repositories of a new session and takes the tokens out.
 * @throws Refusal 422 with a sentence.
 */
export function readResources(submitted: readonly GitRepositoryDto[] = []): SessionResources {
  const resources = submitted.map((resource): PublicResource => {
    const url = readUrl(resource.url);
    return {
      type: 'git_repository',
      url: resource.url,
      mount_path: readMountPath(resource.mount_path ?? nameOf(url)),
      ...(resource.checkout && { checkout: readCheckout(resource.checkout) }),
    };
  });
  const paths = resources.map((resource) => resource.mount_path);
  for (const [index, path] of paths.entries()) {
    if (paths.some((other, at) => at !== index && `${path}/`.startsWith(`${other}/`))) {
      throw unprocessable(
        `Two resources have the mount path ${JSON.stringify(path)}, or one lies in the other`,
      );
    }
  }
  const tokens = Object.fromEntries(
    submitted.flatMap((resource, index) =>
      resource.authorization_token ? [[String(index), resource.authorization_token]] : [],
    ),
  );
  return { resources, tokens };
}

function readUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    throw unprocessable('The url of a repository must begin with https:// or http://');
  }
  if (url.username !== '' || url.password !== '') {
    throw unprocessable(
      'The url of a repository must not hold credentials; use authorization_token',
    );
  }
  return url;
}

function nameOf(url: URL): string {
  const name = decodeURIComponent(url.pathname)
    .replace(/\/+$/, '')
    .replace(/\.git$/, '')
    .split('/')
    .at(-1);
  return name && /^[\w.-]+$/.test(name) && !/^\.+$/.test(name) ? name : 'repository';
}

function readMountPath(text: string): string {
  const relative = text.startsWith(WORKSPACE) ? text.slice(WORKSPACE.length) : text;
  const path = posix.normalize(relative).replace(/\/+$/, '');
  if (path === '' || path === '.' || path.startsWith('/') || path.split('/').includes('..')) {
    throw unprocessable('The mount_path of a repository must lie below the workspace');
  }
  return path;
}

function readCheckout(
  checkout: NonNullable<GitRepositoryDto['checkout']>,
): PublicResource['checkout'] {
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
