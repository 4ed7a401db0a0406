/**
 * What a log row holds. The numbers are stored. Output is written framed; single chunks of it are only found in logs that
 * were written before there were framed rows.
 */
export const LogKind = { stage: 0, stdout: 1, stderr: 2, framed: 3 } as const;
export type LogKind = (typeof LogKind)[keyof typeof LogKind];

/** A row of a session's log, as stored. Ids rise within a session in the order in which rows became visible. */
export interface LogRow {
  /** Of a framed row, the id of its last event. */
  id: number;
  turn: number;
  kind: LogKind;
  /** For a stage, the JSON of {@link StageEvent}; framed, whole Server-Sent Events; else output text. */
  data: string;
}

/** A stage or a chunk of output that has no id yet. */
export interface NewLogRow {
  kind: Exclude<LogKind, typeof LogKind.framed>;
  data: string;
}

/** A step of provisioning, as it is stored and sent. */
export interface StageEvent {
  stage: StageName;
  state: 'started' | 'done' | 'failed';
  /** On `done` and `failed`. */
  duration_ms?: number;
  /** On `failed`: short, without secrets. */
  message?: string;
}

/** In the order in which they run. */
export const STAGE_NAMES = [
  'create_sprite',
  'network_policy',
  'env_file',
  'git_credentials',
  'provision_setup',
  'mcp_config',
  'skills',
  'runtime_start',
] as const;
export type StageName = (typeof STAGE_NAMES)[number];
