import type { JsonFields } from './json-fields.js';

const NEWLINE = 0x0a;
const RETURN = 0x0d;
const FIELD = Buffer.from('data:');

/** Passes the data of server-sent events on to a reader of JSON, as the bytes of the stream pass. */
export class EventData {
  /** How many bytes of {@link FIELD} the line has begun with; -1 on a line of another field. */
  private matched = 0;

  constructor(private readonly fields: JsonFields) {}

  push(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) {
      if (this.matched >= 0 && this.matched < FIELD.length) {
        this.begin(bytes[at] ?? 0);
        at += 1;
        continue;
      }
      const newline = bytes.indexOf(NEWLINE, at);
      const end = newline < 0 ? bytes.length : newline;
      if (this.matched === FIELD.length) this.fields.push(bytes, at, end);
      if (newline >= 0) this.matched = 0;
      at = end + 1;
    }
  }

  /** The first bytes of a line. */
  private begin(byte: number): void {
    if (byte === FIELD[this.matched]) this.matched += 1;
    else if (byte === NEWLINE) {
      // An empty line ends the event.
      this.fields.reset();
      this.matched = 0;
    } else if (byte !== RETURN) this.matched = -1;
  }
}
