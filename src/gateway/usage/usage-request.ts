import { Transform } from 'node:stream';
import { JsonFields } from './json-fields.js';

const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;
const STREAM = 'stream';
const OPTIONS = 'stream_options';
const INCLUDED = 'stream_options.include_usage';
const BACKGROUND = 'background';

/** The members of a request that decide whether its response reports usage, and what has to be added so that it does. */
interface Rule {
  members: readonly string[];
  added: (values: ReadonlyMap<string, unknown>) => string | undefined;
}

const RULES = {
  /** Chat Completions: a stream only reports usage if the request asks for it. */
  chat: {
    members: [STREAM, OPTIONS, INCLUDED],
    added: (values) =>
      values.get(STREAM) === true && values.get(INCLUDED) !== true
        ? ',"stream_options":{"include_usage":true}'
        : undefined,
  },
  /** Responses: one in the background is answered before it is done, and its usage would pass nobody. */
  responses: {
    members: [BACKGROUND],
    added: (values) => (values.get(BACKGROUND) === true ? ',"background":false' : undefined),
  },
} satisfies Record<string, Rule>;

/**
 * Sees to it that the response to a request to OpenAI's API reports usage. Adds a member at the end of the body, where it
 * takes precedence over one with the same name. Apart from that only drops white space at the end.
 */
export function askForUsage(api: keyof typeof RULES): Transform {
  const { members, added }: Rule = RULES[api];
  const values = new Map<string, unknown>();
  const fields = new JsonFields(new Set(members), (path, value) => {
    // A second object replaces the first one with its members.
    for (const known of [...values.keys()]) if (known.startsWith(`${path}.`)) values.delete(known);
    values.set(path, value);
  });
  /** The closing brace of the body, as far as can be told. */
  let held = Buffer.alloc(0);
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      fields.push(chunk);
      const all = Buffer.concat([held, chunk]);
      let end = all.length - 1;
      while ((all[end] ?? SPACE + 1) <= SPACE) end -= 1;
      const isClosed = fields.depth === 0 && all[end] === CLOSE_OBJECT;
      held = isClosed ? Buffer.from([CLOSE_OBJECT]) : Buffer.alloc(0);
      done(null, isClosed ? all.subarray(0, end) : all);
    },
    flush(done) {
      if (held.length > 0) this.push(added(values) ?? '');
      this.push(held);
      done();
    },
  });
}
