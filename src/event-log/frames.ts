import { LogKind, type LogRow, type NewLogRow } from './log-row.js';

/** What a stored row of framed output holds at most, about; a single event may be larger. Characters. */
const STORED_CHARACTERS = 32 * 1024;

/** What is sent in one piece while it is no larger: smaller rows are put together. Characters. */
const BLOCK_CHARACTERS = 32 * 1024;

/** Events that follow each other in a session's log, all of one turn and all output or all stages, as clients get them. */
export interface Block {
  /** The id of the first event. */
  first: number;
  /** The id of the last event. */
  last: number;
  turn: number;
  /** Output, as opposed to stages: the first of a turn is preceded by its `turn_start`. */
  isOutput: boolean;
  /** Whole Server-Sent Events, in UTF-8: as text for whoever read them, as bytes where many share them. */
  data: string | Buffer;
}

/**
 * Numbers a turn's new rows, in their order, and frames its output: many events become one row, which costs the database
 * a fraction of what they would cost one by one, and is sent as it is stored.
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

/** The events of rows that follow each other, the small ones put together. */
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

/** What of a block comes after the cursor, which is below its last id. */
export function blockAfter(block: Block, cursor: number): Block {
  const { data } = block;
  let { first } = block;
  let start = 0;
  while (first <= cursor) {
    // Neither JSON nor an id holds a blank line: it ends the event.
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

/** The id of the event that begins there. */
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

/** What many clients take for the end of a line though the format does not; JSON escapes the other ones itself. */
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

/** @param id the `id:` line; left out, there is none and the client's cursor stays where it is. */
export function encodeEvent(event: object, id?: number): Buffer {
  return Buffer.from(eventText(event, id));
}

export const HEARTBEAT = Buffer.from(': heartbeat\n\n');
