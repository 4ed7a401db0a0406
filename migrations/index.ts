/** All migrations. TypeORM orders them by the number at the end of their names; a released one is never changed. */
export { UsersAndTokens1763700000001 } from './users-and-tokens.js';
export { Environments1763700000002 } from './environments.js';
export { Agents1763700000003 } from './agents.js';
export { SessionsAndTurns1763700000004 } from './sessions-and-turns.js';
export { EventLog1763700000005 } from './event-log.js';
export { Workers1763700000010 } from './workers.js';
export { IdempotencyKeys1763700000011 } from './idempotency-keys.js';
export { SandboxReapers1763700000012 } from './sandbox-reapers.js';
export { TurnTraceparent1763700000020 } from './turn-traceparent.js';
export { OperatorActions1763700000021 } from './operator-actions.js';
export { FramedLog1763700000030 } from './framed-log.js';
export { AdoptedSandboxes1763700000031 } from './adopted-sandboxes.js';
