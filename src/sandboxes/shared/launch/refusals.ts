import { closeSync, readSync, writeSync } from 'node:fs';
import { openPlainFile, type LaunchFolder } from './launch-folder.js';
import { describeRefusal, type RefusalEvent } from '../relay/refusal-log.js';

const STDERR = 2;
const MAX_BYTES = 64 * 1024;
const MARK = 'refused ';

/** Writes down in the launch's log that its sandbox was not let through. For supervisors. */
export function recordRefusal(event: RefusalEvent): void {
  try {
    writeSync(STDERR, `${MARK}${JSON.stringify(event)}\n`);
  } catch {
    // A full disk is no reason to end the launch.
  }
}

/** What a launch was not let reach, in words, each once, as far as the beginning of its log tells. */
export function readRefusals(folder: LaunchFolder): string[] {
  const fd = openPlainFile(folder.log);
  if (fd === null) return [];
  try {
    const buffer = Buffer.alloc(MAX_BYTES);
    const text = buffer.toString('utf8', 0, readSync(fd, buffer, 0, MAX_BYTES, 0));
    const events = text
      .split('\n')
      .slice(0, -1)
      .filter((line) => line.startsWith(MARK))
      .map((line) => JSON.parse(line.slice(MARK.length)) as RefusalEvent);
    return [...new Set(events.map(describeRefusal))];
  } finally {
    closeSync(fd);
  }
}
