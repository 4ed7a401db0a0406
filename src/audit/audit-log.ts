import { Injectable, Logger } from '@nestjs/common';

/** A request that could have changed something. */
export interface AuditedRequest {
  /** Whose token it carried; `null` where the token was not valid. */
  user_id: string | null;
  token_id: string | null;
  /** Method and route, such as `POST /sessions/:id/prompt`. */
  action: string;
  /** The resource that it named or created; `null` where there was none. */
  object_id: string | null;
  /** Of the answer; `null` where the client was gone before there was one. */
  status: number | null;
  /** The same as in the service's other lines about this request. */
  request_id: string;
}

/** A command that could have changed something. */
export interface OperatorAction {
  /** Who called it: the account on the machine, and the machine. */
  operator: string;
  /** The command's name, such as `token revoke`. */
  action: string;
  /** What it was about: an id or a name; `null` where there was none. */
  object: string | null;
  /** `done`, or why not, in one word. */
  result: string;
  /** ISO 8601: the line may be written later. */
  at: string;
}

/**
 * The record of who changed what: one structured line each, in the service's log under the context `Audit`. Knows ids
 * and names, and never a body, so that no secret and no prompt can get in.
 */
@Injectable()
export class AuditLog {
  private readonly logger = new Logger('Audit');

  write(entry: AuditedRequest | OperatorAction): void {
    // Loggers that write for people show the text, and put the members beside it.
    const how = 'status' in entry ? (entry.status ?? 'unanswered') : entry.result;
    this.logger.log({ msg: `${entry.action} ${how}`, ...entry });
  }
}
