import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * What the running code works on, kept along its asynchronous calls: every log line says it, and what is queued carries
 * its trace on.
 */
export interface WorkContext {
  requestId?: string;
  userId?: string;
  sessionId?: string;
  turnId?: string;
  /** W3C trace context of the span that is under way. */
  traceparent?: string;
  /** Takes the secrets of this work out of a text that is about to be logged. */
  redact?: (text: string) => string;
}

const storage = new AsyncLocalStorage<WorkContext>();
const NOTHING: Readonly<WorkContext> = Object.freeze({});

/** Runs `work`, and whatever it starts, in this context. */
export function inWorkContext<T>(context: WorkContext, work: () => T): T {
  return storage.run(context, work);
}

/** Runs what serves the work of many, and so must not carry the context of the one that happened to start it. */
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
