import { request } from 'node:http';
import type { WakeTask } from './launch-request.js';

/** How long the machine stays awake after the last request, if this process cannot end the task. */
const EXPIRES = '5m';
const RENEW_MS = 60_000;
/** After a failed request. */
const RETRY_MS = 2_000;
const ANSWER_MS = 5_000;

/**
 * Keeps a sprite awake. If the interface does not answer, it tries again: the machine then sleeps only while nobody
 * follows the launch, and the launch continues when it wakes.
 */
export function stayAwake(task: WakeTask): { end(): Promise<void> } {
  let timer: NodeJS.Timeout | undefined;
  let ended = false;
  const renew = async (): Promise<void> => {
    const done = await ask(task, 'PUT', JSON.stringify({ expire: EXPIRES }));
    if (!ended) timer = setTimeout(() => void renew(), done ? RENEW_MS : RETRY_MS);
  };
  const first = renew();
  return {
    async end() {
      ended = true;
      clearTimeout(timer);
      await first;
      clearTimeout(timer);
      await ask(task, 'DELETE');
    },
  };
}

/** @returns whether it succeeded */
function ask({ socket, name }: WakeTask, method: string, body?: string): Promise<boolean> {
  const path = `/v1/tasks/${encodeURIComponent(name)}`;
  const headers = { Host: 'sprite', 'Content-Type': 'application/json' };
  return new Promise((resolve) => {
    const asked = request({ socketPath: socket, method, path, headers, timeout: ANSWER_MS });
    asked.on('response', (response) => {
      response.resume();
      response.on('error', () => resolve(false));
      response.on('end', () => resolve((response.statusCode ?? 500) < 300));
    });
    asked.on('timeout', () => asked.destroy(new Error('no answer')));
    asked.on('error', () => resolve(false));
    asked.end(body);
  });
}
