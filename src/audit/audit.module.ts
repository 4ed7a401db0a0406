import { Module } from '@nestjs/common';
import { AuditLog } from './audit-log.js';
import { OperatorActions } from './operator-actions.repository.js';
import { OperatorAudit } from './operator-audit.service.js';
import { RequestAudit } from './request-audit.service.js';

/** Who changed what: a line in the log for every request and every command that may change something. */
@Module({ providers: [AuditLog, OperatorActions, OperatorAudit, RequestAudit] })
export class AuditModule {}
