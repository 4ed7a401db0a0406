/**
 * A small assembler for the classic BPF programs of seccomp. Every rule is a block that either returns or falls through
 * to the next one, so no jump is longer than its own block.
 */

export type Architecture = 'x64' | 'arm64';

/** The kernel's action for a matching system call. */
export type Action = { errno: number } | 'allow' | 'kill';

/** One comparison on the low 32 bits of an argument. */
interface ArgumentTest {
  index: number;
  /** `equals`: one of the values. `anyBit`: any of these bits is set. */
  equals?: readonly number[];
  anyBit?: number;
}

/** The rule for one system call. Tests are tried in order; the first that matches decides, otherwise `otherwise`. */
export interface SyscallRule {
  number: number;
  tests?: readonly { when: readonly ArgumentTest[]; action: Action }[];
  otherwise: Action;
}

const LOAD_WORD = 0x20;
const JUMP_EQUAL = 0x15;
const JUMP_GREATER_OR_EQUAL = 0x35;
const JUMP_ANY_BIT = 0x45;
const RETURN = 0x06;

const OFFSET_NUMBER = 0;
const OFFSET_ARCHITECTURE = 4;
const OFFSET_ARGUMENTS = 16;

const AUDIT_ARCHITECTURE: Record<Architecture, number> = { x64: 0xc000003e, arm64: 0xc00000b7 };
/** System calls of the x32 interface have this bit set and would otherwise bypass every rule. */
const X32_BIT = 0x40000000;
const ENOSYS = 38;

interface Instruction {
  code: number;
  jumpTrue: number;
  jumpFalse: number;
  k: number;
}

const instruction = (code: number, k: number, jumpTrue = 0, jumpFalse = 0): Instruction => ({
  code,
  jumpTrue,
  jumpFalse,
  k,
});

function returnAction(action: Action): Instruction {
  if (action === 'allow') return instruction(RETURN, 0x7fff0000);
  if (action === 'kill') return instruction(RETURN, 0x80000000);
  return instruction(RETURN, 0x00050000 + action.errno);
}

/** Jumps over the next `skip` instructions unless the argument passes the test. */
function assembleTest(test: ArgumentTest, skip: number): Instruction[] {
  const load = instruction(LOAD_WORD, OFFSET_ARGUMENTS + 8 * test.index);
  if (test.anyBit !== undefined) return [load, instruction(JUMP_ANY_BIT, test.anyBit, 0, skip)];
  const values = test.equals ?? [];
  return [
    load,
    ...values.map((value, i) => {
      const remaining = values.length - 1 - i;
      return instruction(JUMP_EQUAL, value, remaining, remaining === 0 ? skip : 0);
    }),
  ];
}

function assembleRule(rule: SyscallRule): Instruction[] {
  const body: Instruction[] = [];
  for (const { when, action } of rule.tests ?? []) {
    let block = [returnAction(action)];
    // Built from the end, so that each test knows how many instructions follow it.
    for (const test of when.toReversed()) block = assembleTest(test, block.length).concat(block);
    body.push(...block);
  }
  body.push(returnAction(rule.otherwise));
  if (body.length > 255) throw new Error(`seccomp rule for ${rule.number} is too long`);
  return [instruction(JUMP_EQUAL, rule.number, 0, body.length), ...body];
}

/** Groups consecutive numbers into ranges, as first and last number. */
function runsOf(numbers: readonly number[]): [first: number, last: number][] {
  const runs: [number, number][] = [];
  for (const number of [...numbers].toSorted((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run !== undefined && number <= run[1] + 1) run[1] = number;
    else runs.push([number, number]);
  }
  return runs;
}

/**
 * The program as an array of `struct sock_filter`. Calls with a rule follow the rule, calls in `allowed` are allowed,
 * and all others fail with ENOSYS. System calls of another architecture kill the process.
 */
export function assembleFilter(
  architecture: Architecture,
  rules: readonly SyscallRule[],
  allowed: readonly number[],
): Buffer {
  const program: Instruction[] = [
    instruction(LOAD_WORD, OFFSET_ARCHITECTURE),
    instruction(JUMP_EQUAL, AUDIT_ARCHITECTURE[architecture], 1, 0),
    returnAction('kill'),
    instruction(LOAD_WORD, OFFSET_NUMBER),
  ];
  if (architecture === 'x64') {
    program.push(
      instruction(JUMP_GREATER_OR_EQUAL, X32_BIT, 0, 1),
      returnAction({ errno: ENOSYS }),
    );
  }
  const named = new Set(rules.map(({ number }) => number));
  // These come first because programs call them most often.
  for (const [first, last] of runsOf(allowed.filter((number) => !named.has(number)))) {
    program.push(
      instruction(JUMP_GREATER_OR_EQUAL, first, 0, 2),
      instruction(JUMP_GREATER_OR_EQUAL, last + 1, 1, 0),
      returnAction('allow'),
    );
  }
  for (const rule of rules) program.push(...assembleRule(rule));
  program.push(returnAction({ errno: ENOSYS }));

  const bytes = Buffer.alloc(program.length * 8);
  for (const [i, { code, jumpTrue, jumpFalse, k }] of program.entries()) {
    bytes.writeUInt16LE(code, i * 8);
    bytes.writeUInt8(jumpTrue, i * 8 + 2);
    bytes.writeUInt8(jumpFalse, i * 8 + 3);
    bytes.writeUInt32LE(k, i * 8 + 4);
  }
  return bytes;
}
