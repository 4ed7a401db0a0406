import { Module } from '@nestjs/common';
import { AuditLog } from './audit-log.js';
import { OperatorActions, OperatorAudit } from './operator-audit.service.js';
import { RequestAudit } from './request-audit.service.js';

/** The audit log: one line for every request and every command that may change something. */
@Module({
  providers: [AuditLog, OperatorActions, OperatorAudit, RequestAudit],
  exports: [OperatorActions],
})
export class AuditModule {}
