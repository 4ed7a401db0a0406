import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { SandboxSweep } from './sandbox-sweep.js';
import type { SandboxesRepository } from './sandboxes.repository.js';

const PLACE = { driver: 'local', host: 'here' };
const SANDBOX = { sandboxId: 'sandbox', sessionId: 'session' };
const forget = jest.fn<(id: string) => Promise<void>>();

let limit: AbortController;
let sweep: SandboxSweep;

/** An engine that does not answer: a request ends only with its signal. */
const silence = ({ signal }: { signal: AbortSignal }): Promise<never> =>
  new Promise((_resolve, reject) => {
    const giveUp = (): void => reject(new Error('not in time'));
    if (signal.aborted) giveUp();
    else signal.addEventListener('abort', giveUp);
  });

beforeEach(() => {
  limit = new AbortController();
  jest.spyOn(AbortSignal, 'timeout').mockImplementation(() => limit.signal);
  const driver = { list: silence, exists: silence, destroy: async () => undefined };
  const records = { idle: async () => [], forget } as unknown as SandboxesRepository;
  sweep = new SandboxSweep(records, driver, PLACE);
});
afterEach(() => {
  jest.restoreAllMocks();
  forget.mockReset();
});

test('a request to an engine that does not answer ends after the limit, or when the service stops', async () => {
  const stopping = new AbortController();
  const looks = [sweep.compare(new AbortController().signal), sweep.compare(stopping.signal)];
  stopping.abort();
  await expect(looks[1]).rejects.toThrow('not in time');
  limit.abort();
  await expect(looks[0]).rejects.toThrow('not in time');
});

test('a sandbox whose work does not end stays on record, for another attempt', async () => {
  const destroyed = sweep.destroy(SANDBOX, () => new Promise(() => undefined));
  limit.abort();
  await expect(destroyed).rejects.toMatchObject({ kind: 'aborted' });
  expect(forget).not.toHaveBeenCalled();
  limit = new AbortController();
  await sweep.destroy(SANDBOX, async () => undefined);
  expect(forget).toHaveBeenCalledWith('sandbox');
});
