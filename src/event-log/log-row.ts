/** What a log row holds. The numbers are stored. */
export const LogKind = { stage: 0, stdout: 1, stderr: 2 } as const;
export type LogKind = (typeof LogKind)[keyof typeof LogKind];

/** A row of a session's log, as read. Ids rise within a session in the order in which rows became visible. */
export interface LogRow {
  id: number;
  turn: number;
  kind: LogKind;
  /** Output text; for a stage, the JSON of {@link StageEvent}. */
  data: string;
}

/** A row that has no id yet. */
export type NewLogRow = Pick<LogRow, 'kind' | 'data'>;

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
