import { LogKind, type LogRow, type NewLogRow } from './event-log.repository.js';

/** The approximate maximum size of a stored row of framed output, in characters. A single event may be larger. */
const STORED_CHARACTERS = 32 * 1024;

/** Smaller rows are combined up to this size before sending, in characters. */
const BLOCK_CHARACTERS = 32 * 1024;

/**
 * Consecutive events of a session's log as clients get them, all of the same turn, and either all output or all stages.
 */
export interface Block {
  /** The id of the first event. */
  first: number;
  /** The id of the last event. */
  last: number;
  turn: number;
  /** Output as opposed to stages. The first output of a turn is preceded by its `turn_start`. */
  isOutput: boolean;
  /** Complete Server-Sent Events in UTF-8: a string for a single reader, bytes if many share them. */
  data: string | Buffer;
}

/**
 * Assigns ids to a turn's new rows in order and frames its output: many events become one row. That costs the database
 * far less than a row for each event, and the row is sent as it is stored.
 * @param after the id of the session's last row.
 */
export function frameRows(rows: readonly NewLogRow[], turn: number, after: number): LogRow[] {
  const framed: LogRow[] = [];
  let open: LogRow | undefined;
  let id = after;
  for (const { kind, data } of rows) {
    id += 1;
    if (kind === LogKind.stage) {
      framed.push({ id, turn, kind, data });
      open = undefined;
      continue;
    }
    const text = outputText(id, turn, kind, data);
    if (open && open.data.length + text.length <= STORED_CHARACTERS) {
      open.id = id;
      open.data += text;
    } else {
      open = { id, turn, kind: LogKind.framed, data: text };
      framed.push(open);
    }
  }
  return framed;
}

/** The events of consecutive rows, with small rows combined. */
export function blocksOf(rows: readonly LogRow[]): Block[] {
  const blocks: Block[] = [];
  let open: (Block & { data: string }) | undefined;
  for (const row of rows) {
    const isOutput = row.kind !== LogKind.stage;
    const data = textOf(row);
    const fits =
      open?.turn === row.turn &&
      open.isOutput === isOutput &&
      open.data.length + data.length <= BLOCK_CHARACTERS;
    if (open && fits) {
      open.data += data;
      open.last = row.id;
    } else {
      const first = row.kind === LogKind.framed ? firstIdIn(data) : row.id;
      open = { first, last: row.id, turn: row.turn, isOutput, data };
      blocks.push(open);
    }
  }
  return blocks;
}

/** The part of a block after the cursor, which must be below the block's last id. */
export function blockAfter(block: Block, cursor: number): Block {
  const { data } = block;
  let { first } = block;
  let start = 0;
  while (first <= cursor) {
    // A blank line ends an event, because neither JSON nor an id contains one.
    start = data.indexOf('\n\n', start) + 2;
    first = firstIdIn(data, start);
  }
  if (start === 0) return block;
  return {
    ...block,
    first,
    data: typeof data === 'string' ? data.slice(start) : data.subarray(start),
  };
}

const ID_LINE = 'id: ';
const ID_DIGITS = 20;

/** The id of the event that starts at this position. */
export function firstIdIn(data: string | Buffer, start = 0): number {
  const from = start + ID_LINE.length;
  const to = from + ID_DIGITS;
  return Number.parseInt(
    typeof data === 'string' ? data.slice(from, to) : data.toString('latin1', from, to),
    10,
  );
}

function textOf(row: LogRow): string {
  switch (row.kind) {
    case LogKind.framed:
      return row.data;
    case LogKind.stage:
      return eventText({ type: 'stage', id: row.id, ...(JSON.parse(row.data) as object) }, row.id);
    case LogKind.stdout:
    case LogKind.stderr:
      return outputText(row.id, row.turn, row.kind, row.data);
  }
}

function outputText(
  id: number,
  turn: number,
  kind: typeof LogKind.stdout | typeof LogKind.stderr,
  data: string,
): string {
  const stream = kind === LogKind.stdout ? 'stdout' : 'stderr';
  const json = safe(JSON.stringify(data));
  return `id: ${id}\ndata: {"type":"output","id":${id},"stream":"${stream}","data":${json},"turn":${turn}}\n\n`;
}

/** Many clients end a line at these characters, although the SSE format does not. JSON escapes the others. */
const LINE_BREAKS = /[\u0085\u2028\u2029]/g;

function safe(json: string): string {
  return json.replace(
    LINE_BREAKS,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function eventText(event: object, id?: number): string {
  return `${id === undefined ? '' : `${ID_LINE}${id}\n`}data: ${safe(JSON.stringify(event))}\n\n`;
}

/** @param id the `id:` line; without it, the client's cursor does not move. */
export function encodeEvent(event: object, id?: number): Buffer {
  return Buffer.from(eventText(event, id));
}

/** The maximum length of a comment, in characters; longer ones are of no use. */
const COMMENT_CHARACTERS = 300;

/**
 * A comment line, which clients ignore. Replaces characters that end a line or move a terminal's cursor with blanks.
 */
export function encodeComment(text: string): Buffer {
  const line = text.replaceAll(/[\p{Cc}\u2028\u2029]+/gu, ' ').slice(0, COMMENT_CHARACTERS);
  return Buffer.from(`: ${line.toWellFormed()}\n\n`);
}

export const HEARTBEAT = Buffer.from(': heartbeat\n\n');
