import type { Driver } from './attack.js';
import { attacksFor } from './attacks/index.js';
import { type HostileReport, slowdown } from './hostile.js';
import type { Single } from './isolated.js';
import type { Summary } from './samples.js';

const ENDING_LENGTH = 160;

/** What the victim noticed. */
export function summaryTable(report: HostileReport): string {
  const { before, under, verified, left, illness, memoryMiB, endings } = report;
  const { lines, readers, lost, repeated, reordered } = verified;
  const memory = Object.entries(memoryMiB).map(([name, peak]) => `${name} ${peak} MiB`);
  const held = endings.filter((ending) => ending.held).length;
  return markdown(
    ['', 'without attackers', 'with attackers'],
    [
      ['latency of a line, p50', time(before.latency.p50), time(under.latency.p50)],
      ['latency of a line, p99', time(before.latency.p99), time(under.latency.p99)],
      ['latency of a line, worst', time(before.latency.max), time(under.latency.max)],
      ['p99 with / without', '', slowdown(report).toFixed(2)],
      ['a new session prints after (p50)', time(before.start.p50), time(under.start.p50)],
      ['a new session prints after (worst)', time(before.start.max), time(under.start.max)],
      ['new sessions', counts(before), counts(under)],
      [`lines at ${readers} readers`, '', `${lines}`],
      ['lost, repeated, reordered', '', `${lost}, ${repeated}, ${reordered}`],
      ['attacks that held, of all', '', `${held} of ${endings.length}`],
      ['left on the host', '', left.length === 0 ? 'nothing' : cell(left.join('; '))],
      ['service', '', illness === undefined ? 'well' : cell(illness)],
      ['memory, at most', '', memory.join(', ')],
    ],
  );
}

/** How the attacks of one run ended. */
export function rotationTable({ endings }: HostileReport, driver: Driver): string {
  const rows = attacksFor(driver).flatMap(({ name, what }) => {
    const own = endings.filter(({ attack }) => attack === name);
    const shown = own.find((ending) => !ending.held) ?? own[0];
    if (!shown) return [];
    const held = own.filter((ending) => ending.held).length;
    return [[`\`${name}\``, what, `${held} of ${own.length}`, cell(shown.ending)]];
  });
  return markdown(['attack', 'what it does', 'held', 'how it ended'], rows);
}

/** What each attack did by itself. */
export function isolatedTable(results: readonly Single[]): string {
  return markdown(
    [
      'attack',
      'what it does',
      'held',
      'how it ended',
      "the victim's lines (p50, p99, worst)",
      'harm',
    ],
    results.map(({ attack, what, held, ending, measured, harm }) => [
      `\`${attack}\``,
      what,
      held ? 'yes' : '**no**',
      cell(ending),
      times(measured.latency),
      harm === '' ? 'none' : cell(harm),
    ]),
  );
}

function counts({ started, failed }: HostileReport['before']): string {
  return `${started} started, ${failed.length} failed`;
}

function times({ p50, p99, max }: Summary): string {
  return [p50, p99, max].map(time).join(', ');
}

function time(milliseconds: number): string {
  return milliseconds >= 10_000
    ? `${(milliseconds / 1000).toFixed(0)} s`
    : `${milliseconds.toFixed(0)} ms`;
}

/** Any text as it can stand in a table. */
function cell(text: string): string {
  const short = text.length > ENDING_LENGTH ? `${text.slice(0, ENDING_LENGTH)}…` : text;
  return short.replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll(/\s+/g, ' ');
}

function markdown(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |\n`;
  return line(head) + line(head.map(() => '---')) + rows.map(line).join('');
}
