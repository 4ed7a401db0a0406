import { Logger } from '@nestjs/common';

const SHUTDOWN_LIMIT_MS = 20_000;

/** The first signal stops in order and in bounded time; a second one stops at once. */
export function onStopSignal(stop: () => Promise<void>): void {
  let stopping = false;
  const handle = (): void => {
    if (stopping) process.exit(1);
    stopping = true;
    setTimeout(() => {
      new Logger('Service').error(`Not stopped within ${SHUTDOWN_LIMIT_MS / 1000} s, ending`);
      process.exit(1);
    }, SHUTDOWN_LIMIT_MS).unref();
    stop().then(
      () => process.exit(0),
      (error: unknown) => {
        new Logger('Service').error(error);
        process.exit(1);
      },
    );
  };
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, handle);
  // Started by a wrapper over IPC: when the wrapper is gone, nobody else will stop this process.
  process.on('disconnect', handle);
}
