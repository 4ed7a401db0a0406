import { LogKind, type LogRow, type NewLogRow } from './log-row.js';

/** What a stored row of framed output holds at most, about; a single event may be larger. Characters. */
const STORED_CHARACTERS = 32 * 1024;

/**
 * Events that follow each other in a session's log, all of one turn and all output or all stages, as clients get them:
 * bytes that are made once and shared by all who read them.
 */
export interface Block {
  /** The id of the first event. */
  first: number;
  /** The id of the last event. */
  last: number;
  turn: number;
  /** Output, as opposed to stages: the first of a turn is preceded by its `turn_start`. */
  isOutput: boolean;
  bytes: Buffer;
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

/** The events of rows that follow each other, in as few blocks as can be. */
export function blocksOf(rows: readonly LogRow[]): Block[] {
  const blocks: Block[] = [];
  for (let start = 0; start < rows.length;) {
    const begin = rows[start];
    if (!begin) break;
    const isOutput = begin.kind !== LogKind.stage;
    let text = '';
    let end = start;
    for (let row = rows[end]; row; row = rows[end]) {
      if (row.turn !== begin.turn || (row.kind !== LogKind.stage) !== isOutput) break;
      text += textOf(row);
      end += 1;
    }
    blocks.push({
      first: begin.kind === LogKind.framed ? idAt(begin.data) : begin.id,
      last: rows[end - 1]?.id ?? begin.id,
      turn: begin.turn,
      isOutput,
      bytes: Buffer.from(text),
    });
    start = end;
  }
  return blocks;
}

/** What of a block comes after the cursor, which is below its last id. */
export function blockAfter(block: Block, cursor: number): Block {
  let { first } = block;
  let start = 0;
  while (first <= cursor) {
    // Neither JSON nor an id holds a blank line: it ends the event.
    start = block.bytes.indexOf('\n\n', start) + 2;
    first = idAt(block.bytes.toString('latin1', start, start + 24));
  }
  return start === 0 ? block : { ...block, first, bytes: block.bytes.subarray(start) };
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

const ID_LINE = 'id: ';

/** The id of the event that a text begins with. */
function idAt(text: string): number {
  return Number.parseInt(text.slice(ID_LINE.length, ID_LINE.length + 20), 10);
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
