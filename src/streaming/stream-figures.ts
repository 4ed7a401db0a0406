/** What the streams of a process have done so far; plain numbers, so that counting costs nothing. */
export class StreamFigures {
  /** Events that were handed to connections, heartbeats not included. */
  events = 0;
  bytes = 0;
  /** How often a stream stopped reading because its client had enough for the moment. */
  pauses = 0;
}
