import { execFileSync } from 'node:child_process';

/** The processes on this host that serve files of a session's local sandbox, one a line. */
export function fileServersOf(sessionId: string): string {
  const script = 'pgrep -af -- --files | grep -F "$1" | grep -v pgrep || true';
  return execFileSync('bash', ['-c', script, 'bash', sessionId], { encoding: 'utf8' });
}
