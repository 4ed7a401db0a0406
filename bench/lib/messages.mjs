/**
 * The content of every stream: messages of 150 bytes with an ascending number and the time of writing (microseconds).
 */
export const MESSAGE_BYTES = 150;
export const MESSAGE_FILL = 'abcdefghijklmnopqrstuvwxyz '.repeat(6);

export const nowMicros = () => Math.round((performance.timeOrigin + performance.now()) * 1000);

export function message(seq, at = nowMicros()) {
  return `@s=${seq} @t=${at} ${MESSAGE_FILL}`.slice(0, MESSAGE_BYTES - 1);
}

/**
 * A bash script that writes the same messages in a sandbox without a process for each line. To sleep, bash reads with a
 * timeout from a pipe that has no writer.
 * @param options `from`: the first number; `form`: the text around each message.
 */
export const pacedScript = ({ count, intervalMs, from = 1, form = ['', ''] }) => `
exec 9<> <(:); export LC_ALL=C; fill='${MESSAGE_FILL}'
interval=$((${intervalMs} * 1000)); next=\${EPOCHREALTIME/./}
for ((n = ${from}; n < ${from} + ${count}; n++)); do
  ((next += interval)); now=\${EPOCHREALTIME/./}; wait=$((next - now))
  if ((wait > 0)); then printf -v wait '%d.%06d' $((wait / 1000000)) $((wait % 1000000)); read -r -t "$wait" -u 9; fi
  line="@s=$n @t=\${EPOCHREALTIME/./} $fill"; printf '${form[0]}%s${form[1]}\\n' "\${line:0:${MESSAGE_BYTES - 1}}"
done`;

/**
 * Checks a stream during the measurement: messages have no gaps, and ids ascend. Use one for each stream.
 * @param options `ids`: whether events carry an integer `id:` line that must ascend.
 */
export class StreamCheck {
  events = 0;
  messages = 0;
  last = 0;
  lastId = 0;
  problem;
  ended = false;
  rest = '';

  constructor({ ids }, onMessage = () => undefined) {
    this.ids = ids;
    this.onMessage = onMessage;
  }

  /** Adds text of the stream's body. */
  take(text) {
    const all = this.rest + text;
    let start = 0;
    for (let end = all.indexOf('\n\n'); end !== -1; end = all.indexOf('\n\n', start)) {
      this.event(all, start, end);
      start = end + 2;
    }
    this.rest = all.slice(start);
  }

  event(all, start, end) {
    const event = all.slice(start, end);
    this.events += 1;
    if (this.ids && event.startsWith('id: ')) {
      const id = Number.parseInt(event.slice(4, 24), 10);
      const ending = event.includes('"type":"exit"');
      if (!(id > this.lastId || (ending && id === this.lastId)))
        this.problem ??= `id ${id} after ${this.lastId}`;
      this.lastId = id;
      if (ending) this.ended = true;
    }
    for (let at = event.indexOf('@s='); at !== -1; at = event.indexOf('@s=', at + 3)) {
      const seq = Number.parseInt(event.slice(at + 3, at + 15), 10);
      // A late reader may begin with any message; after that none may be missing.
      if (this.last !== 0 && seq !== this.last + 1)
        this.problem ??= `message ${seq} after ${this.last}`;
      this.last = seq;
      this.messages += 1;
      this.onMessage(event, at);
    }
  }
}
