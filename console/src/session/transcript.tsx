import { lazy, Suspense } from 'preact/compat';
import { useMemo, useState } from 'preact/hooks';
import type { Turn } from '../api/client.js';
import { Copy } from '../components/basics.js';
import { Markdown } from '../components/markdown.js';
import { Output } from '../components/output.js';
import { VirtualList } from '../components/virtual-list.js';
import { bytes, duration } from '../lib/format.js';
import { plain } from '../lib/untrusted.js';
import type { Entry, ToolCall } from './entries.js';
import type { SessionLog } from './session-log.js';

const Diff = lazy(() => import('../components/diff.js'));

/** Input that is long as JSON is clipped like output. */
const SUMMARY_LENGTH = 160;

/** What happened in a session, as messages, tool calls and notes. */
export function TranscriptView({ log, turns }: { log: SessionLog; turns: readonly Turn[] }) {
  // Lives as long as the view: which entries are open must survive their leaving the visible part.
  const open = useMemo(() => new Set<number>(), []);
  return (
    <VirtualList
      label="Transcript"
      count={log.entries.length}
      estimate={44}
      follow
      keyOf={(index) => log.entries[index]?.key ?? index}
      render={(index) => {
        const entry = log.entries[index];
        return (
          entry && <EntryRow entry={entry} revision={entry.revision} turns={turns} open={open} />
        );
      }}
    />
  );
}

interface RowProps {
  entry: Entry;
  revision: number;
  turns: readonly Turn[];
  open: Set<number>;
}

function EntryRow({ entry, turns, open }: RowProps) {
  const [isOpen, setOpen] = useState(open.has(entry.key));
  const toggle = (): void => {
    if (isOpen) open.delete(entry.key);
    else open.add(entry.key);
    setOpen(!isOpen);
  };
  switch (entry.kind) {
    case 'turn':
      return (
        <TurnRow
          turn={turns.find(({ turn_number }) => turn_number === entry.turn)}
          number={entry.turn}
        />
      );
    case 'text':
      return (
        <article class="entry text">
          <Markdown text={entry.text} />
        </article>
      );
    case 'thinking':
      return (
        <Fold class="thinking" open={isOpen} toggle={toggle} summary={<em>Thinking</em>}>
          <Markdown text={entry.text} />
        </Fold>
      );
    case 'tool':
      return <ToolRow call={entry} open={isOpen} toggle={toggle} />;
    case 'note':
      return (
        <Fold
          class={`note ${entry.tone}`}
          open={isOpen}
          toggle={toggle}
          summary={plain(entry.text)}
          {...(entry.details === undefined && { fixed: true })}
        >
          <Output text={JSON.stringify(entry.details, null, 2) ?? ''} />
        </Fold>
      );
    case 'raw':
      return (
        <article class={`entry raw ${entry.stream}`}>
          {entry.stream === 'stderr' && <span class="label">stderr</span>}
          <Output text={entry.text} />
        </article>
      );
    case 'end':
      return <EndRow event={entry.event} />;
  }
}

function TurnRow({ turn, number }: { turn: Turn | undefined; number: number }) {
  return (
    <article class="entry prompt">
      <p class="label">
        Prompt of turn {number}
        {turn && <Copy text={turn.prompt} label="Copy" title="Copy the prompt" />}
      </p>
      {turn && turn.prompt !== '' ? (
        <Output text={turn.prompt} />
      ) : (
        <p class="quiet">{turn ? 'No prompt: the agent has its instructions.' : '…'}</p>
      )}
    </article>
  );
}

function EndRow({ event }: { event: Extract<Entry, { kind: 'end' }>['event'] }) {
  switch (event.type) {
    case 'exit':
      return (
        <p class={`entry end ${event.code === 0 ? 'good' : 'bad'}`}>
          {event.code === 0 ? '✓ The turn is done' : `✕ The runtime exited with code ${event.code}`}
        </p>
      );
    case 'error':
      return <p class="entry end bad">✕ {plain(event.message)}</p>;
    case 'terminated':
      return <p class="entry end">■ {plain(event.message)}</p>;
    case 'stale':
      return <p class="entry end">{plain(event.message)}; still waiting</p>;
  }
}

const STATES = { running: ['…', 'running'], done: ['✓', 'done'], failed: ['✕', 'failed'] } as const;

function ToolRow({ call, open, toggle }: { call: ToolCall; open: boolean; toggle: () => void }) {
  const [sign, word] = STATES[call.state];
  return (
    <Fold
      class={`tool ${call.state}`}
      open={open}
      toggle={toggle}
      summary={
        <>
          <span class="sign" role="img" aria-label={word}>
            {sign}
          </span>
          <strong>{plain(call.name)}</strong>
          <code class="argument">{plain(call.argument.slice(0, SUMMARY_LENGTH))}</code>
          <span class="figures">
            {call.output !== undefined && bytes(call.output.length)}
            {call.durationMs !== undefined && ` · ${duration(call.durationMs)}`}
          </span>
        </>
      }
    >
      {call.edits ? (
        <Suspense fallback={<p class="quiet">Loading the diff viewer…</p>}>
          <Diff edits={call.edits} />
        </Suspense>
      ) : (
        <>
          <p class="label">
            Input <Copy text={() => inputOf(call.input)} label="Copy" title="Copy the input" />
          </p>
          <Output text={inputOf(call.input)} />
        </>
      )}
      {call.output !== undefined && call.output !== '' && (
        <>
          <p class="label">
            Result{' '}
            <Copy text={() => plain(call.output ?? '')} label="Copy" title="Copy the result" />
          </p>
          <Output text={call.output} class={call.state === 'failed' ? 'bad' : ''} />
        </>
      )}
    </Fold>
  );
}

/** A command on its own reads better than JSON with a command in it. */
function inputOf(input: unknown): string {
  // A description only says what the command does.
  const { command, description: _, ...rest } = (input ?? {}) as Record<string, unknown>;
  if (typeof command === 'string' && Object.keys(rest).length === 0) return command;
  return JSON.stringify(input, null, 2) ?? '';
}

function Fold(props: {
  class: string;
  open: boolean;
  toggle: () => void;
  summary: preact.ComponentChildren;
  children: preact.ComponentChildren;
  fixed?: boolean;
}) {
  if (props.fixed) {
    return (
      <article class={`entry fold ${props.class}`}>
        <p class="summary">{props.summary}</p>
      </article>
    );
  }
  return (
    <article class={`entry fold ${props.class}`}>
      <button type="button" class="summary" aria-expanded={props.open} onClick={props.toggle}>
        <span class="chevron" aria-hidden="true">
          {props.open ? '▾' : '▸'}
        </span>
        {props.summary}
      </button>
      {props.open && <div class="inside">{props.children}</div>}
    </article>
  );
}
