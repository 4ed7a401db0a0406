import { LogKind, type LogRow } from './log-row.js';

/** A log row as clients get it: bytes that are made once and shared by all who read them. */
export interface Frame {
  id: number;
  turn: number;
  /** Output, as opposed to a stage: the first of a turn is preceded by its `turn_start`. */
  isOutput: boolean;
  bytes: Buffer;
}

/** Encodes a row as one whole Server-Sent Event, with its `id:` line. */
export function encodeRow(row: LogRow): Frame {
  const isOutput = row.kind !== LogKind.stage;
  const event = isOutput
    ? {
        type: 'output',
        id: row.id,
        stream: row.kind === LogKind.stdout ? 'stdout' : 'stderr',
        data: row.data,
        turn: row.turn,
      }
    : { type: 'stage', id: row.id, ...(JSON.parse(row.data) as object) };
  return { id: row.id, turn: row.turn, isOutput, bytes: encodeEvent(event, row.id) };
}

/** What many clients take for the end of a line though the format does not; JSON escapes the other ones itself. */
const LINE_BREAKS = /[\u0085\u2028\u2029]/g;

/** @param id the `id:` line; left out, there is none and the client's cursor stays where it is. */
export function encodeEvent(event: object, id?: number): Buffer {
  const json = JSON.stringify(event).replace(
    LINE_BREAKS,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return Buffer.from(`${id === undefined ? '' : `id: ${id}\n`}data: ${json}\n\n`);
}

export const HEARTBEAT = Buffer.from(': heartbeat\n\n');
