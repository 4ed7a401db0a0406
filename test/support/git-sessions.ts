import { onSprites } from './driver.js';
import { type GitServer, startGitServer } from './git-server.js';
import type { Service } from './service.js';
import { leaveNothing, SessionsOf, startSessionService } from './sessions.js';
import { configureGateway, nameOfHost } from './sprites/suite.js';

/** With characters that need escapes in URLs and in headers. */
export const GIT_TOKEN = 'git-t0ken/with:odd@characters%20';

/** A service whose sandboxes reach a git server. */
export interface GitSessions {
  git: GitServer;
  service: Service;
  sessions: SessionsOf;
  /** The request's member for a repository that needs {@link GIT_TOKEN}. */
  repository: (name: string, members?: object) => object;
  stop: () => Promise<void>;
}

/** @param env added to the environment of the service */
export async function startGitSessions(
  env: Record<string, string | undefined> = {},
): Promise<GitSessions> {
  const git = await startGitServer(GIT_TOKEN, onSprites() ? nameOfHost() : undefined);
  // Sandboxes reach no loopback address of the host but a gateway's.
  if (onSprites()) await configureGateway({ OPENAI_BASE_URL: git.url });
  const service = await startSessionService({ OPENAI_BASE_URL: git.url, ...env });
  const sessions = new SessionsOf(service, service);
  return {
    git,
    service,
    sessions,
    repository: (name, members = {}) => ({
      type: 'git_repository',
      url: `${git.url}/${name}.git`,
      authorization_token: GIT_TOKEN,
      ...members,
    }),
    stop: async () => {
      await leaveNothing(service, [sessions]);
      await service.stop();
      await git.stop();
    },
  };
}
