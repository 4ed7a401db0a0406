/**
 * A very small assembler for the classic BPF programs that seccomp runs. Every rule is a block that either returns or
 * falls through to the next, so no jump is ever longer than its own block.
 */

export type Architecture = 'x64' | 'arm64';

/** What the kernel does with a matching system call. */
export type Action = { errno: number } | 'allow' | 'kill';

/** One comparison on the low 32 bits of an argument. */
interface ArgumentTest {
  index: number;
  /** `equals`: one of the values. `anyBit`: any of these bits is set. */
  equals?: readonly number[];
  anyBit?: number;
}

/** What happens to one system call. Tests are tried in order; the first that holds decides, else `otherwise`. */
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
/** System calls of the x32 interface carry this bit and would otherwise walk past every rule. */
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

/** Jumps over what follows (`skip` instructions) unless the argument passes the test. */
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
    // Built from the end, so that each test knows how much lies behind it.
    for (const test of when.toReversed()) block = assembleTest(test, block.length).concat(block);
    body.push(...block);
  }
  body.push(returnAction(rule.otherwise));
  if (body.length > 255) throw new Error(`seccomp rule for ${rule.number} is too long`);
  return [instruction(JUMP_EQUAL, rule.number, 0, body.length), ...body];
}

/**
 * The program as an array of `struct sock_filter`, which is what `bwrap --seccomp` reads. Another architecture's system
 * calls kill the process; what no rule names is allowed.
 */
export function assembleFilter(architecture: Architecture, rules: readonly SyscallRule[]): Buffer {
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
  for (const rule of rules) program.push(...assembleRule(rule));
  program.push(returnAction('allow'));

  const bytes = Buffer.alloc(program.length * 8);
  for (const [i, { code, jumpTrue, jumpFalse, k }] of program.entries()) {
    bytes.writeUInt16LE(code, i * 8);
    bytes.writeUInt8(jumpTrue, i * 8 + 2);
    bytes.writeUInt8(jumpFalse, i * 8 + 3);
    bytes.writeUInt32LE(k, i * 8 + 4);
  }
  return bytes;
}
