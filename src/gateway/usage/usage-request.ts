import { Transform } from 'node:stream';
import { JsonFields } from './json-fields.js';

const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;
/** More white space than this at the end of a body is not searched for the closing brace. */
const MAX_HELD_BYTES = 4096;
const ADDED = ',"stream_options":{"include_usage":true}';
const STREAM = 'stream';
const INCLUDED = 'stream_options.include_usage';

/**
 * Asks for usage in a streamed request to OpenAI's Chat Completions, unless the client does: without that, the stream
 * does not report any. Adds a member at the end of the body, where it takes precedence, and changes nothing else.
 */
export function askForUsage(): Transform {
  const values = new Map<string, unknown>();
  const fields = new JsonFields(new Set([STREAM, INCLUDED]), (path, value) =>
    values.set(path, value),
  );
  /** A closing brace that may be the last one, and the white space behind it. */
  let held = Buffer.alloc(0);
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      fields.push(chunk);
      const all = Buffer.concat([held, chunk]);
      let end = all.length - 1;
      while ((all[end] ?? SPACE + 1) <= SPACE) end -= 1;
      const kept =
        all[end] === CLOSE_OBJECT && all.length - end <= MAX_HELD_BYTES ? end : all.length;
      held = Buffer.from(all.subarray(kept));
      done(null, all.subarray(0, kept));
    },
    flush(done) {
      const isMissing = values.get(STREAM) === true && values.get(INCLUDED) !== true;
      if (isMissing && fields.depth === 0 && held.length > 0) this.push(ADDED);
      this.push(held);
      done();
    },
  });
}
