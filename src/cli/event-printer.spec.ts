import { expect, it } from '@jest/globals';
import { EventPrinter, type SessionStreamEvent } from './event-printer.js';

/** What is printed, with styles shown as `<style>`. */
function printed(events: readonly SessionStreamEvent[]): string {
  let text = '';
  const printer = new EventPrinter(
    (part) => {
      text += part;
    },
    (style, part) => `<${String(style)}>${part}</>`,
  );
  for (const event of events) printer.print(event);
  return text;
}

const output = (data: string, stream: 'stdout' | 'stderr' = 'stdout'): SessionStreamEvent => ({
  type: 'output',
  id: 9,
  turn: 1,
  stream,
  data,
});

it('prints a session from its first stage to its end', () => {
  expect(
    printed([
      { type: 'start', provider: 'shell', session_id: 'S' },
      { type: 'stage', id: 1, stage: 'create_sprite', state: 'started' },
      { type: 'stage', id: 2, stage: 'create_sprite', state: 'done', duration_ms: 42 },
      { type: 'stage', id: 3, stage: 'env_file', state: 'done', duration_ms: 1_958 },
      { type: 'stage', id: 4, stage: 'runtime_start', state: 'started' },
      { type: 'turn_start', id: 5, turn: 1 },
      output('half a line'),
      output('oh\n', 'stderr'),
      output('no end'),
      { type: 'exit', id: 9, code: 3 },
    ]).split('\n'),
  ).toEqual([
    '<bold>Session S, shell</>',
    '<dim>· create_sprite</>',
    '<green>✓</> create_sprite        42 ms',
    '<green>✓</> env_file             2.0 s',
    '<cyan>▶ runtime_start        2.0 s  for the stages before it</>',
    '<dim>── turn 1</>',
    'half a line<yellow>oh',
    '</>no end',
    '<red>✗ exited with 3</>',
    '',
  ]);
});

it('lets output colour the terminal and command it in no other way', () => {
  const nasty = 'a\u001B[31mred\u001B[0m\u001B]0;title\u0007\u001B[2J\u009B1m\r\nb\rc\td\n';
  expect(printed([output(nasty)])).toBe(
    'a\u001B[31mred\u001B[0m\uFFFD]0;title\uFFFD\uFFFD[2J\uFFFD1m\nb\uFFFDc\td\n',
  );
});

it('prints what failed and why', () => {
  expect(
    printed([
      {
        type: 'stage',
        id: 1,
        stage: 'provision_setup',
        state: 'failed',
        duration_ms: 61_000,
        message: 'no such package',
      },
      { type: 'error', id: 1, message: 'provision_setup failed' },
    ]),
  ).toBe(
    '<red>✗ provision_setup  1 min 1 s  no such package</>\n<red>✗ provision_setup failed</>\n',
  );
});
