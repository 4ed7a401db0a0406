import type { Session, Turn } from '../api/client.js';
import { Elapsed, Status, Time } from '../components/basics.js';
import { type Column, DataTable } from '../components/data-table.js';
import { cost, count } from '../lib/format.js';
import { plain } from '../lib/untrusted.js';

const PROMPT_LENGTH = 200;

type Usage = Turn['usage'];

/** What a turn, or all of them together, used. */
const FIGURES: readonly (readonly [head: string, figure: (usage: Usage) => string])[] = [
  ['Input tokens', (usage) => count(usage.input_tokens)],
  ['Output tokens', (usage) => count(usage.output_tokens)],
  ['Cache read', (usage) => count(usage.cache_read_input_tokens)],
  ['Cache written', (usage) => count(usage.cache_creation_input_tokens)],
  ['Requests', (usage) => count(usage.requests)],
  ['Cost', (usage) => cost(usage.cost_usd)],
];

/** The turns of a session with what each of them used. */
export function TurnsView({ session, turns }: { session: Session; turns: readonly Turn[] }) {
  const several = turns.length > 1;
  const columns: readonly Column<Turn>[] = [
    {
      head: 'Turn',
      cell: ({ turn_number: number }) => number,
      ...(several && { total: <strong>Total</strong> }),
    },
    { head: 'Status', cell: ({ status }) => <Status status={status} /> },
    { head: 'Prompt', class: 'prompt-cell', cell: (turn) => <Prompt turn={turn} /> },
    { head: 'Queued', cell: ({ created_at: at }) => <Time at={at} /> },
    {
      head: 'Duration',
      class: 'number',
      cell: ({ started_at: from, ended_at: to }) =>
        from !== null && <Elapsed from={from} to={to} />,
    },
    ...FIGURES.map(([head, figure]) => ({
      head,
      class: 'number',
      cell: ({ usage }: Turn) => figure(usage),
      ...(several && { total: figure(session.usage) }),
    })),
  ];
  return (
    <div class="scroll padded" tabIndex={0} role="region" aria-label="Turns and usage">
      <DataTable columns={columns} items={turns} />
    </div>
  );
}

function Prompt({ turn: { prompt, error } }: { turn: Turn }) {
  return (
    <div title={plain(prompt.slice(0, 10 * PROMPT_LENGTH))}>
      {plain(prompt.slice(0, PROMPT_LENGTH))}
      {error !== null && <p class="bad">{plain(error)}</p>}
    </div>
  );
}
