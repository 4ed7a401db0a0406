import 'reflect-metadata';
import { describe, expect, it } from '@jest/globals';
import { type Command, CommanderError } from 'commander';
import { buildProgram } from './program.js';

/** A program whose commands do nothing when they are taken. */
function program(): Command {
  const built = buildProgram({
    name: 'somebody@somewhere',
    readConfig: () => {
      throw new Error('no command is run here');
    },
  });
  for (const command of leaves(built)) command.action(() => undefined);
  return built;
}

function leaves(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);
}

function nameOf(command: Command): string {
  const { parent } = command;
  return parent?.parent ? `${nameOf(parent)} ${command.name()}` : command.name();
}

function helpOf(command: Command): string {
  let text = '';
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
  });
  command.outputHelp();
  return text;
}

async function errorOf(args: readonly string[]): Promise<[unknown, string]> {
  let said = '';
  const built = program();
  for (const each of [built, ...leaves(built), ...built.commands]) {
    each.configureOutput({
      writeErr: (part) => {
        said += part;
      },
    });
  }
  const error = await built.parseAsync(args, { from: 'user' }).catch((reason: unknown) => reason);
  return [error, said];
}

describe('help', () => {
  const commands = leaves(program());
  const names = commands.map(nameOf);

  it('is there for every command that operators rely on', () => {
    expect(names.sort()).toEqual([
      'changes',
      'doctor',
      'files get',
      'files list',
      'files put',
      'installation adopt',
      'installation renew',
      'installation show',
      'logs purge',
      'sandboxes list',
      'sandboxes reap',
      'secrets reencrypt',
      'sessions follow',
      'sessions list',
      'sessions show',
      'sessions terminate',
      'token create',
      'token list',
      'token revoke',
      'usage',
      'user create',
      'user key list',
      'user key remove',
      'user key set',
      'user limit',
      'user list',
      'user operator',
    ]);
  });

  it.each(commands.map((command) => [nameOf(command), command] as const))(
    'of %s describes it, offers --json, and has examples that can be parsed',
    async (name, command) => {
      expect(command.description()).toMatch(/^[a-z].{10}/);
      const help = helpOf(command);
      expect(help).toContain('--json');
      const examples = [...help.matchAll(/^ {2}agent-sessions (.+?)(?: \|.*)?$/gm)];
      expect(examples.length).toBeGreaterThan(0);
      for (const [, example = ''] of examples) {
        expect(example).toMatch(new RegExp(`^${name}( |$)`));
        const [error] = await errorOf(example.split(' '));
        expect([example, error instanceof CommanderError]).toEqual([example, false]);
      }
    },
  );

  it('says what the exit codes mean', () => {
    const help = helpOf(program());
    for (const code of [0, 1, 2, 3, 4, 5, 6, 7])
      expect(help).toMatch(new RegExp(`^  ${code}  \\S`, 'm'));
  });
});

it.each([
  ['no user named', ['token', 'create']],
  ['an expiry that is none', ['token', 'create', '--user', 'a', '--expires', 'soon']],
  ['an expiry in the past', ['token', 'create', '--user', 'a', '--expires', '0d']],
  ['a limit below zero', ['user', 'create', 'x', '--session-limit', '-1']],
  ['a limit that is none', ['user', 'limit', 'a', 'many']],
  ['an unknown state', ['sessions', 'list', '--status', 'nonsense']],
  ['a key as an argument', ['user', 'key', 'set', 'a', 'openai', 'sk-planted']],
  ['an unknown command', ['frobnicate']],
  ['an unknown option', ['user', 'list', '--frob']],
  ['an argument too many', ['user', 'list', 'x']],
  ['an event that is none', ['sessions', 'follow', 'x', '--since', '-1']],
  ['an address that is none', ['doctor', '--url', 'example']],
  ['a turn that is none', ['changes', 'x', '--turn', 'last']],
  ['an unknown archive', ['files', 'get', 'x', 'y', '--archive', 'rar']],
  ['an unknown part', ['doctor', '--only', 'everything']],
])('refuses %s in one line', async (_name, args) => {
  const [error, said] = await errorOf(args);
  expect(error).toBeInstanceOf(CommanderError);
  expect(said).toMatch(/^error: [^\n]+\n$/);
});
