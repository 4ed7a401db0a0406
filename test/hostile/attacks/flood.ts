import { Answers, type Countable, type Mallory } from '../mallory.js';

/** Sends requests on some connections at once until the time is over; the answers are counted. */
export async function flood(
  mallory: Mallory,
  options: { seconds: number; lanes: number; atMost?: number },
  request: (index: number) => Promise<Countable>,
): Promise<string> {
  const answers = new Answers();
  const end = mallory.until(options.seconds);
  let next = 0;
  const lane = async (): Promise<void> => {
    while (Date.now() < end && !mallory.signal.aborted && next < (options.atMost ?? Infinity))
      answers.add(await request(next++).catch((error: unknown) => brief(error)));
  };
  await Promise.all(Array.from({ length: options.lanes }, lane));
  return answers.toString();
}

function brief(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: string };
  return typeof code === 'string' ? code : (message ?? 'no answer');
}

/** A body as it is, whatever it may be. */
export async function send(
  mallory: Mallory,
  path: string,
  body: string,
  headers: Record<string, string> = {},
): Promise<Countable> {
  const signal = AbortSignal.any([mallory.signal, AbortSignal.timeout(20_000)]);
  const response = await fetch(mallory.url + path, {
    method: 'POST',
    body,
    signal,
    headers: { 'content-type': 'application/json', ...headers },
  }).catch((error: unknown) => {
    throw (error as { cause?: unknown }).cause ?? error;
  });
  const text = await response.text();
  return { status: response.status, body: parsed(text) };
}

function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}
