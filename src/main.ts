import 'reflect-metadata';
import { start } from './start.js';

start(process.env).catch((error: unknown) => {
  // One line for what an operator can mend; the stack only helps where the message does not.
  const detail = error instanceof Error ? error.message : String(error);
  process.stderr.write(`agent-session-service: ${detail}\n`);
  if (process.env.LOG_LEVEL === 'debug' && error instanceof Error) {
    process.stderr.write(`${error.stack}\n`);
  }
  process.exit(1);
});
