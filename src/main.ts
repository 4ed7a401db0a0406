import 'reflect-metadata';
import { enableCompileCache } from 'node:module';
import { fileURLToPath } from 'node:url';

// In the build, not in /tmp: who may write there could choose what this process runs.
enableCompileCache(fileURLToPath(new URL('../compile-cache', import.meta.url)));
try {
  const { start } = await import('./start.js');
  await start(process.env);
} catch (error) {
  // One line for what an operator can mend; the stack only helps where the message does not.
  const detail = error instanceof Error ? error.message : String(error);
  process.stderr.write(`agent-session-service: ${detail}\n`);
  if (process.env.LOG_LEVEL === 'debug' && error instanceof Error) {
    process.stderr.write(`${error.stack}\n`);
  }
  process.exit(1);
}
