import type { Service } from './service.js';

/** A line of the audit log: of a request or of a command. */
export type AuditLine = Record<string, unknown>;

/** What a service has written under the context `Audit` so far; the members stand in the line or in its message. */
export function auditLines(service: Pick<Service, 'logs'>): AuditLine[] {
  return service
    .logs()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as { context?: string; message?: unknown })
    .filter(({ context }) => context === 'Audit')
    .map((line) => (typeof line.message === 'object' ? line.message : line) as AuditLine);
}
