import { Injectable, Logger } from '@nestjs/common';

/** A request that may have changed something. */
export interface AuditedRequest {
  /** The owner of the access token; `null` if the token was not valid. */
  user_id: string | null;
  token_id: string | null;
  /** Method and route, such as `POST /sessions/:id/prompt`. */
  action: string;
  /** The resource that the request named or created; `null` if there was none. */
  object_id: string | null;
  /** The response's status, even if the client did not wait for it; `null` if the outcome is unknown. */
  status: number | null;
  /** The request id of the other log lines about this request. */
  request_id: string;
}

/** A command, or a request of an operator, that may have changed something. */
export interface OperatorAction {
  /** Of a command: the account on the machine, and the machine. Of a request: `user` and the user's name. */
  operator: string;
  /** The command's name, such as `token revoke`. */
  action: string;
  /** The object of the command: an id or a name; `null` if there was none. */
  object: string | null;
  /** `done`, or the kind of failure in one word. */
  result: string;
  /** ISO 8601; the log line may be written later. */
  at: string;
}

/**
 * Writes one structured line for each change to the service's log, with the context `Audit`. The lines contain ids and
 * names but never bodies, so that no secrets or prompts can leak into them.
 */
@Injectable()
export class AuditLog {
  private readonly logger = new Logger('Audit');

  write(entry: AuditedRequest | OperatorAction): void {
    // In the `pretty` format, the text comes first and the members follow.
    const how = 'status' in entry ? (entry.status ?? 'unanswered') : entry.result;
    this.logger.log({ msg: `${entry.action} ${how}`, ...entry });
  }
}
