import { useMemo, useState } from 'preact/hooks';
import { API_ROOT } from '../api/client.js';
import type { SessionEvent } from '../api/event-source.js';
import { Copy } from '../components/basics.js';
import { VirtualList } from '../components/virtual-list.js';
import { count } from '../lib/format.js';
import { plain } from '../lib/untrusted.js';
import type { SessionLog } from './session-log.js';

const MAX_SHOWN = 1_000;

const idOf = (event: SessionEvent): number | undefined => ('id' in event ? event.id : undefined);

/** The command that streams everything after an event. */
function curl(sessionId: string, after: number): string {
  return `curl -N -H "Authorization: Bearer $TOKEN" '${API_ROOT}/sessions/${sessionId}/stream?since=${after}'`;
}

/** The places of the events that contain a text. Each event is looked at once, however often more of them arrive. */
class Search {
  readonly found: number[] = [];
  private next = 0;

  constructor(private readonly wanted: string) {}

  /** Looks at what has been added since the last call. */
  advance(events: readonly SessionEvent[]): readonly number[] {
    for (; this.next < events.length; this.next += 1) {
      if (JSON.stringify(events[this.next]).toLowerCase().includes(this.wanted))
        this.found.push(this.next);
    }
    return this.found;
  }
}

/** Every event as it came, searchable. */
export function RawEvents({ log, sessionId }: { log: SessionLog; sessionId: string }) {
  const [query, setQuery] = useState('');
  // Lives as long as the view: which events are open must survive their leaving the visible part.
  const open = useMemo(() => new Set<number>(), []);
  const { events } = log;
  const { length } = events;
  const search = useMemo(
    () => (query === '' ? undefined : new Search(query.toLowerCase())),
    [query],
  );
  const found = search?.advance(events);
  const placeOf = (index: number): number => (found ? (found[index] ?? -1) : index);
  return (
    <div class="raw-events">
      <p class="toolbar">
        <input
          type="search"
          aria-label="Search the events"
          placeholder="Search the events"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
        <span class="quiet number">
          {found && `${count(found.length)} of `}
          {count(length)} events
        </span>
        <Copy text={curl(sessionId, 0)} label="Copy as curl" />
      </p>
      {found?.length === 0 && <p class="quiet padded">No event contains this.</p>}
      <VirtualList
        // Another search is another list, which begins at its own start.
        key={query}
        label="Raw events"
        count={found ? found.length : length}
        estimate={25}
        follow={!found}
        keyOf={placeOf}
        render={(index) => {
          const event = events[placeOf(index)];
          return (
            event && (
              <EventRow
                event={event}
                place={placeOf(index)}
                open={open}
                curl={curl(sessionId, idOf(event) ?? 0)}
              />
            )
          );
        }}
      />
    </div>
  );
}

interface RowProps {
  event: SessionEvent;
  /** Its place among all events. */
  place: number;
  /** The places of those that are open. */
  open: Set<number>;
  /** The command that streams on from here. */
  curl: string;
}

function EventRow({ event, place, open, curl: command }: RowProps) {
  const [isOpen, setOpen] = useState(open.has(place));
  const json = JSON.stringify(event);
  const toggle = (): void => {
    if (isOpen) open.delete(place);
    else open.add(place);
    setOpen(!isOpen);
  };
  return (
    <div class="event">
      <button type="button" class="summary" aria-expanded={isOpen} onClick={toggle}>
        <span class="number event-id">{idOf(event) ?? ''}</span>
        <span class="event-type">{event.type}</span>
        <code class="argument">{plain(json.slice(0, MAX_SHOWN))}</code>
      </button>
      {isOpen && (
        <div class="inside">
          <p class="toolbar">
            <Copy text={json} label="Copy JSON" />
            <Copy text={command} label="Copy as curl from here" />
          </p>
          <pre class="output">
            {plain(JSON.stringify(event, null, 2).slice(0, 100 * MAX_SHOWN))}
          </pre>
        </div>
      )}
    </div>
  );
}
