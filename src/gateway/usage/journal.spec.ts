import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { appendFileSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UsageJournal } from './journal.js';
import type { UsageEntry } from './usage-entry.js';

let folder: string;
let journals: UsageJournal[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'usage-'));
  journals = [];
});
afterEach(() => {
  for (const journal of journals) journal.close();
  rmSync(folder, { recursive: true });
});

async function open(maxBytes?: number): Promise<UsageJournal> {
  const journal = await UsageJournal.open({ folder, ...(maxBytes !== undefined && { maxBytes }) });
  journals.push(journal);
  return journal;
}

/** As if the process had been killed: its files stay, its socket does not answer. */
function kill(journal: UsageJournal): void {
  const { alive } = journal as unknown as { alive: { close(): void } };
  alive.close();
  journals.splice(journals.indexOf(journal), 1);
}

const entry = (id: string, output = 1): UsageEntry => ({
  id,
  session: 's',
  turn: 't',
  user: 'u',
  api: 'anthropic',
  model: 'm'.repeat(100),
  status: 200,
  at: 0,
  durationMs: 1,
  input_tokens: 1,
  output_tokens: output,
  cache_read_input_tokens: 0,
  cache_creation_input_tokens: 0,
});

/** Reads and acknowledges everything. */
function drain(journal: UsageJournal): UsageEntry[] {
  const entries: UsageEntry[] = [];
  for (let batch = journal.next(); batch !== undefined; batch = journal.next()) {
    entries.push(...batch.entries);
    batch.acknowledge();
  }
  return entries;
}
const ids = (entries: readonly UsageEntry[]) => entries.map(({ id }) => id);
const bytes = () =>
  readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);

it('delivers many entries in their order, each once, and then takes no space', async () => {
  const journal = await open();
  const wanted = Array.from({ length: 10_000 }, (_, n) => `e${n}`);
  const read: string[] = [];
  for (const [n, id] of wanted.entries()) {
    journal.append(entry(id));
    if (n % 700 !== 0) continue;
    const batch = journal.next();
    read.push(...ids(batch?.entries ?? []));
    batch?.acknowledge();
  }
  expect(bytes()).toBeGreaterThan(2 ** 21);
  expect([...read, ...ids(drain(journal))]).toEqual(wanted);
  expect(journal.isEmpty).toBe(true);
  expect(bytes()).toBe(0);
});

it('is full before it takes more than its limit, until entries are acknowledged', async () => {
  const journal = await open(10_000);
  let count = 0;
  while (!journal.isFull) journal.append(entry(`e${(count += 1)}`));
  expect(bytes()).toBeLessThan(11_000);
  expect(drain(journal)).toHaveLength(count);
  expect(journal.isFull).toBe(false);
});

it('keeps what is known of unfinished requests, whatever else is acknowledged', async () => {
  const first = await open();
  first.begin(entry('open'));
  first.begin(entry('ended'));
  for (let n = 0; n < 5_000; n += 1) first.append(entry(`e${n}`));
  first.append(entry('ended', 7));
  expect(drain(first)).toHaveLength(5_001);
  kill(first);
  const second = await open();
  await second.adopt();
  const left = drain(second);
  // Entries may come again with the same id, but none is missing.
  expect(ids(left)).toContain('open');
  expect(left.filter(({ id }) => id === 'ended').every((each) => each.output_tokens === 7)).toBe(
    true,
  );
});

it('leaves the files of a living gateway alone, and removes those of a killed one', async () => {
  const first = await open();
  first.append(entry('a'));
  const second = await open();
  await second.adopt();
  expect(second.next()).toBeUndefined();
  kill(first);
  await second.adopt();
  expect(ids(drain(second))).toEqual(['a']);
  expect(readdirSync(folder)).toHaveLength(2);
});

it('reads what is whole of a file that was cut', async () => {
  const first = await open();
  first.append(entry('a'));
  const file = readdirSync(folder).find((name) => name.endsWith('.jsonl')) ?? '';
  appendFileSync(join(folder, file), '{"id":"half');
  kill(first);
  const second = await open();
  await second.adopt();
  expect(ids(drain(second))).toEqual(['a']);
});

it('removes its own files when it ends with nothing left', async () => {
  const journal = await open();
  journal.append(entry('a'));
  drain(journal);
  journals.length = 0;
  journal.close();
  expect(readdirSync(folder)).toEqual([]);
});
