import { badRequest } from '../common/errors.js';

/**
 * Where a client wants to go on: the header `Last-Event-ID`, else the query `since`, else the beginning.
 * @returns the id of the last event that the client has had; 0 for none.
 * @throws Refusal 400.
 */
export function readCursor(header: unknown, since: unknown): number {
  if (header !== undefined && header !== '') return parse(header, 'Last-Event-ID');
  if (since !== undefined) return parse(since, 'since');
  return 0;
}

function parse(value: unknown, name: string): number {
  if (typeof value !== 'string' || !/^\d+$/.test(value)) {
    throw badRequest(`${name} must be a non-negative integer`);
  }
  // Beyond what any id can be, all cursors mean the same: everything was seen.
  return Math.min(Number(value), Number.MAX_SAFE_INTEGER);
}
