/**
 * The states of a sandbox's record. A pool makes a sandbox before any session needs it (`warming`) and keeps it
 * (`ready`) until a session adopts it. A session's sandbox is `active` while it has a turn and `idle` between turns.
 * `deleting` is final: the record is removed once the sandbox is destroyed.
 */
export const SANDBOX_STATES = ['warming', 'ready', 'active', 'idle', 'deleting'] as const;

export type SandboxState = (typeof SANDBOX_STATES)[number];

const NEXT: Readonly<Record<SandboxState, readonly SandboxState[]>> = {
  warming: ['ready', 'deleting'],
  ready: ['active', 'deleting'],
  active: ['idle', 'deleting'],
  idle: ['active', 'deleting'],
  deleting: [],
};

/** SQL: the records in one of these states. */
const inState = (states: readonly SandboxState[]): string =>
  `state IN (${states.map((state) => `'${state}'`).join(', ')})`;

/** SQL, a condition: the record may change to this state. */
export const mayBecome = (state: SandboxState): string =>
  inState(SANDBOX_STATES.filter((from) => NEXT[from].includes(state)));

/** SQL, an assignment: changes the state, and sets `state_since` unless the record is in this state already. */
export const become = (state: SandboxState): string =>
  `state = '${state}', state_since = CASE state WHEN '${state}' THEN state_since ELSE now() END`;

/** SQL, a condition: the sandbox belongs to a session, which may continue to use it. */
export const IN_USE = inState(['active', 'idle']);
/**
 * SQL, a condition: the sandbox belongs to no session. A reaper destroys it unless a pool or another reaper owns it.
 */
export const WITHOUT_SESSION = inState(['warming', 'ready', 'deleting']);
