import { type Attack, inSandbox } from '../attack.js';
import { perl } from './perl.js';

/** Claude Code's place is taken by a program that runs the prompt: what that prints is read as the agent's events. */
const FAKE_AGENT = {
  setup_script: `mkdir -p ~/.local/bin && printf '#!/bin/sh\\nexec bash\\n' > ~/.local/bin/claude
chmod 755 ~/.local/bin ~/.local/bin/claude`,
};
const CLAUDE = { name: 'fake', provider: 'anthropic', model: 'claude-sonnet-4-5' };

function asAgent(name: string, what: string, prompt: string, expected: RegExp): Attack {
  return inSandbox({
    name,
    what,
    expected,
    software: true,
    seconds: 150,
    environment: FAKE_AGENT,
    agent: CLAUDE,
    prompts: [prompt],
  });
}

const result = (value: string): string =>
  `{"type":"result","subtype":"error","is_error":true,"result":${value}}`;

/** A turn that ended with an exit code, or an error of its own. */
const ENDED = /^(exit \d+|error: (?!Turn timed out))/;
/** One that its agent failed. */
const FAILED = /^(exit [1-9]|error: (?!Turn timed out))/;
const FLOODED = /^(exit 0|error: The turn wrote more than the output limit)/;

/** Secrets that begin alike, and output that almost is one of them all the time. */
const ALIKE = Object.fromEntries(
  Array.from({ length: 250 }, (_value, index) => [`S${index}`, `${'a'.repeat(2_000)}${index}`]),
);
/** Secrets of many lines, each of which may have to be found by itself. */
const MANY_LINES = Object.fromEntries(
  Array.from({ length: 12 }, (_value, index) => [
    `L${index}`,
    Array.from({ length: 1_000 }, (_line, line) => `secret-${index}-${'b'.repeat(20)}${line}`).join(
      '\n',
    ),
  ]),
);

export const OUTPUT_ATTACKS: readonly Attack[] = [
  asAgent(
    'result-nul',
    "an agent's result with NUL in it",
    `echo '${result('"a\\u0000b"')}'`,
    FAILED,
  ),
  asAgent(
    'result-surrogate',
    "an agent's result with half a character",
    `echo '${result('"x\\ud83d"')}'`,
    FAILED,
  ),
  asAgent(
    'result-cut-emoji',
    "an agent's result that is cut in the middle of a character",
    `perl -e 'binmode STDOUT, ":utf8"; print q({"type":"result","subtype":"error","is_error":true,"result":"), "a" x 499, chr(0x1F680) x 9, qq("}\\n)'`,
    FAILED,
  ),
  asAgent(
    'result-numbers',
    'an agent’s events with numbers that nothing can store',
    `echo '{"type":"result","subtype":"success","usage":{"input_tokens":1e400,"output_tokens":-99999999999999999999},"total_cost_usd":1e999,"num_turns":9007199254740993}'`,
    ENDED,
  ),
  asAgent(
    'result-deep',
    "an agent's event that is nested 2,000,000 deep",
    `perl -e 'print q({"type":"result","result":), "[" x 2000000, "]" x 2000000, "}\\n"'`,
    ENDED,
  ),
  asAgent(
    'result-long-lines',
    "an agent's events in lines of 5 MB",
    `perl -e 'for (1..3) { print q({"type":"result","is_error":true,"result":"), "x" x 5000000, qq("}\\n) }'`,
    ENDED,
  ),
  asAgent(
    'result-keys',
    "an agent's event with 300,000 keys, many of them the same or special",
    `perl -e 'print q({"type":"result","__proto__":{"is_error":true},"constructor":1), (map { qq(,"k$_":$_) } 1..300000), "}\\n"'`,
    ENDED,
  ),
  asAgent(
    'result-many',
    '200,000 results in one turn',
    `perl -e 'print qq({"type":"result","subtype":"success"}\\n{"type":"result","is_error":true,"result":"\\\\u0000\\\\ud800"}\\n) x 100000'`,
    ENDED,
  ),
  inSandbox({
    name: 'invalid-utf8',
    what: '5 MiB that is not UTF-8, and characters cut at every place',
    prompts: [
      `head -c 4M /dev/urandom; for i in {1..20000}; do printf '\\xf0\\x9f\\x9a'; printf '\\x80\\xc3'; done >&2`,
    ],
    expected: FLOODED,
  }),
  inSandbox({
    name: 'nul-flood',
    what: '4 MiB of NUL',
    prompts: ['head -c 4M /dev/zero'],
    expected: FLOODED,
  }),
  inSandbox({
    name: 'escapes-flood',
    what: '4 MiB of characters that JSON writes as six',
    prompts: [`head -c 4M /dev/zero | tr '\\0' '\\001'`],
    expected: FLOODED,
  }),
  inSandbox({
    name: 'output-flood',
    what: 'endless output on both streams',
    prompts: ['yes to-stdout & yes to-stderr >&2 & wait'],
    expected: /^error: The turn wrote more than the output limit of \d+ bytes/,
    seconds: 60,
  }),
  inSandbox({
    name: 'tiny-writes',
    what: 'a million writes of one byte, to both streams in turn',
    prompts: [
      perl(`for (my $i = 0; $i < 500000; $i++) { syswrite STDOUT, 'a'; syswrite STDERR, 'b' }`),
    ],
    expected: /^(exit 0|error: .*(timeout|timed out|time))/,
  }),
  asAgent(
    'tiny-writes-of-an-agent',
    "an agent's line that comes in a million writes of one byte",
    perl(`for (my $i = 0; $i < 1000000; $i++) { syswrite STDOUT, 'a' }`),
    /^(exit 1|error: .*(timeout|timed out|time))/,
  ),
  inSandbox({
    name: 'long-line',
    what: '12 MiB without an end of line',
    prompts: [`head -c 12M /dev/zero | tr '\\0' x`],
    expected: FLOODED,
  }),
  inSandbox({
    name: 'secrets-alike',
    what: '250 secrets that begin with the same 2,000 characters, and 4 MiB of these',
    environment: { env_vars: ALIKE },
    prompts: [`head -c 4M /dev/zero | tr '\\0' a`],
    expected: FLOODED,
  }),
  inSandbox({
    name: 'secrets-of-lines',
    what: '12 secrets of 1,000 lines, and 4 MiB of output that is almost like them',
    environment: { env_vars: MANY_LINES },
    prompts: [
      `for i in {1..4000}; do printf 'secret-%d-%s%d\\n' $((i % 50)) bbbbbbbbbbbbbbbbbbbb "$i"; done; head -c 3M /dev/zero | tr '\\0' b`,
    ],
    // Where arguments and variables are limited, nothing starts.
    expected: /^(exit 0|error: )|422/,
  }),
  inSandbox({
    name: 'setup-flood',
    what: 'a setup script with endless output',
    software: true,
    seconds: 150,
    environment: { setup_script: 'yes to-stdout & yes to-stderr >&2' },
    prompts: ['echo BREACH set up'],
    expected: /^error: (?!Turn timed out)/,
  }),
  inSandbox({
    name: 'setup-fails-badly',
    what: 'a setup script that fails with NUL and half characters as its last words',
    software: true,
    seconds: 150,
    environment: { setup_script: `printf 'a\\0b\\xf0\\x9f\\xff' >&2; exit 3` },
    prompts: ['echo never'],
    expected: /^error: (?!Turn timed out)/,
  }),
];
