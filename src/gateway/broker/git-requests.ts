/**
 * The requests of git and git LFS, as method and path below a repository. Hosts also serve settings and downloads there,
 * for which the agent must not use the session's token. The answer to `TRACE` even contains the token.
 */
const ALLOWED: readonly RegExp[] = [
  /^GET info\/refs$/,
  /^POST git-(upload|receive)-pack$/,
  // The dumb protocol, for servers without git's own program.
  /^GET HEAD$/,
  /^GET objects\/info\/(packs|(http-)?alternates)$/,
  /^GET objects\/[\da-f]{2}\/[\da-f]{38,62}$/,
  /^GET objects\/pack\/pack-[\da-f]{40,64}\.(pack|idx)$/,
  // Git LFS: the batch API, locks and objects. GitLab serves objects below `gitlab-lfs`.
  /^(GET|POST|PUT) (info\/lfs|gitlab-lfs)\/[\w./~-]+$/,
];

/**
 * Whether git or git LFS sends such a request.
 * @param path below the repository, without a leading slash and without the query
 */
export function isGitRequest(method: string, path: string): boolean {
  return ALLOWED.some((pattern) => pattern.test(`${method} ${path}`));
}

/**
 * Whether git or git LFS sends such a request for some repository.
 * @param path with that of the repository
 */
export function isGitRequestBelow(method: string, path: string): boolean {
  const parts = path.split('/');
  return parts.some((_, index) => isGitRequest(method, parts.slice(index).join('/')));
}
