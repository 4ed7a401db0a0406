import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * What the running code works on. It follows asynchronous calls, every log line contains it, and queued work continues
 * its trace.
 */
export interface WorkContext {
  requestId?: string;
  userId?: string;
  sessionId?: string;
  turnId?: string;
  /** W3C trace context of the span that is under way. */
  traceparent?: string;
  /** Removes the secrets of this work from a text before it is logged. */
  redact?: (text: string) => string;
}

const storage = new AsyncLocalStorage<WorkContext>();
const NOTHING: Readonly<WorkContext> = Object.freeze({});

/** Runs `work`, and whatever it starts, in this context. */
export function inWorkContext<T>(context: WorkContext, work: () => T): T {
  return storage.run(context, work);
}

/** Runs code that serves many callers without the context of the one that happened to start it. */
export function outsideWork<T>(work: () => T): T {
  return storage.exit(work);
}

export function currentWork(): Readonly<WorkContext> {
  return storage.getStore() ?? NOTHING;
}

/** Adds to the current context, if there is one. */
export function noteWork(more: WorkContext): void {
  const context = storage.getStore();
  if (context) Object.assign(context, more);
}
