import { CommanderError, Option } from 'commander';
import { ExitCode } from './exit-codes.js';

/** An access token as an option of a command that is a client of the service. */
export function tokenOption(): Option {
  return new Option(
    '--token <token>',
    'an access token; better in the variable than in an argument, which others can see',
  ).env('AGENT_SESSIONS_TOKEN');
}

/** What is wrong with options that commander cannot see. */
export function usageError(message: string): CommanderError {
  process.stderr.write(`error: ${message}\n`);
  return new CommanderError(ExitCode.usage, 'agent-sessions.usage', message);
}
