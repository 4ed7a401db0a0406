import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { OneOf, Integer, LogRowId, Uuid } from '../../common/openapi/decorators.js';
import { STAGE_NAMES, type StageName } from '../../event-log/event-log.repository.js';

/** The first event of every stream. */
@ApiSchema({
  name: 'StartEvent',
  description: 'Always first, before replayed output. Has no `id`.',
})
export class StartEvent {
  type!: 'start';

  /** The agent's provider. */
  @ApiProperty({ example: 'shell' })
  provider!: string;

  @Uuid()
  session_id!: string;
}

/** A step of provisioning. */
@ApiSchema({
  name: 'StageEvent',
  description:
    'A step between the acceptance and the first output. A step that is skipped has none.',
})
export class StageEvent {
  type!: 'stage';

  /** The log row; the same sequence as output. */
  @LogRowId({ minimum: 1, example: 3 })
  id!: number;

  @ApiProperty({ enum: STAGE_NAMES, enumName: 'StageName', example: 'create_sprite' })
  stage!: StageName;

  @ApiProperty({ enum: ['started', 'done', 'failed'], enumName: 'StageState', example: 'done' })
  state!: 'started' | 'done' | 'failed';

  /** Milliseconds; on `done` and `failed`. */
  @Integer({ required: false, minimum: 0, example: 42 })
  duration_ms?: number;

  /** Why, in short; on `failed`. */
  message?: string;
}

/** A turn's output begins. */
@ApiSchema({
  name: 'TurnStartEvent',
  description:
    'Comes before the first output of a turn. Has no `id:` line: it never moves the cursor.',
})
export class TurnStartEvent {
  type!: 'turn_start';

  /** The log row of the output that follows. */
  @LogRowId({ minimum: 1, example: 9 })
  id!: number;

  /** From 1 on. */
  @Integer({ minimum: 1, example: 1 })
  turn!: number;
}

/** A piece of output. */
@ApiSchema({ name: 'OutputEvent', description: 'A piece of what the runtime wrote.' })
export class OutputEvent {
  type!: 'output';

  /** The log row. */
  @LogRowId({ minimum: 1, example: 9 })
  id!: number;

  @ApiProperty({ enum: ['stdout', 'stderr'], enumName: 'StreamName', example: 'stdout' })
  stream!: 'stdout' | 'stderr';

  /**
   * Text of at most 64 KiB that need not end with a line. Bytes that are not UTF-8, and NUL, stand as U+FFFD; known
   * secrets as `[redacted]`.
   */
  @ApiProperty({ example: 'hello\n' })
  data!: string;

  /** From 1 on. */
  @Integer({ minimum: 1, example: 1 })
  turn!: number;
}

/** The runtime exited. */
@ApiSchema({ name: 'ExitEvent', description: 'The runtime exited. The stream ends.' })
export class ExitEvent {
  type!: 'exit';

  /** The last log row. */
  @LogRowId({ minimum: 0, example: 9 })
  id!: number;

  /** 0 is success. */
  @Integer({ example: 0 })
  code!: number;
}

/** The turn ended without an exit code. */
@ApiSchema({
  name: 'ErrorEvent',
  description:
    'The turn ended without an exit code: a failed stage, a timeout, a flood. The stream ends.',
})
export class ErrorEvent {
  type!: 'error';

  /** The last log row. */
  @LogRowId({ minimum: 0, example: 9 })
  id!: number;

  message!: string;
}

/** The session was terminated. */
@ApiSchema({ name: 'TerminatedEvent', description: 'The session was terminated. The stream ends.' })
export class TerminatedEvent {
  type!: 'terminated';

  /** The last log row. */
  @LogRowId({ minimum: 0, example: 9 })
  id!: number;

  @ApiProperty({ example: 'Session terminated' })
  message!: string;
}

/** A running session has been silent for too long. */
@ApiSchema({
  name: 'StaleEvent',
  description:
    'A running session has been silent for too long. The stream ends, the run does not: reconnect to wait on.',
})
export class StaleEvent {
  type!: 'stale';

  /** The last log row. */
  @LogRowId({ minimum: 0, example: 9 })
  id!: number;

  @ApiProperty({ example: 'No new output for 600 seconds' })
  message!: string;
}

/** The last event of a stream. Derived from rows that say how the turn or the session ended, never stored. */
export type TerminalEvent = ExitEvent | ErrorEvent | TerminatedEvent | StaleEvent;

/** An event: the JSON after `data:` in a stream. */
@ApiSchema({
  name: 'SessionEvent',
  description: 'An event: the JSON after `data:`. Ignore types that you do not know.',
})
@OneOf(() => ({
  start: StartEvent,
  stage: StageEvent,
  turn_start: TurnStartEvent,
  output: OutputEvent,
  exit: ExitEvent,
  error: ErrorEvent,
  terminated: TerminatedEvent,
  stale: StaleEvent,
}))
export class SessionEvent {}
