/**
 * Hosts a LocalSandboxDriver in a process of its own: as another user than the test's, or to be killed by it. Takes
 * the path of the compiled driver's module and the options as JSON; speaks over the IPC channel.
 */
import { once } from 'node:events';
import { PassThrough } from 'node:stream';

const { LocalSandboxDriver } = await import(process.argv[2]);
const driver = new LocalSandboxDriver(JSON.parse(process.argv[3]));

/** Running calls by id: their abort controllers, and for `follow` the iterator. */
const calls = new Map();

function plainError(error) {
  return { name: error?.name, kind: error?.kind, message: error?.message ?? String(error) };
}

async function answer({ id, method, options, aborted }) {
  const controller = new AbortController();
  if (aborted) controller.abort();
  try {
    const complete = { ...options, signal: controller.signal };
    if (method === 'follow') {
      calls.set(id, { controller, iterator: driver.follow(complete) });
      return undefined;
    }
    if (method === 'files') {
      const input = new PassThrough({ objectMode: true });
      calls.set(id, { controller, input, iterator: driver.files({ ...complete, input }) });
      return undefined;
    }
    calls.set(id, { controller });
    const result = await driver[method](complete);
    calls.delete(id);
    return result;
  } catch (error) {
    calls.delete(id);
    throw error;
  }
}

process.on('message', (message) => void serve(message));
process.on('disconnect', () => process.exit(0));
process.send({ ready: true });

async function serve(message) {
  const { id, method, of } = message;
  try {
    let result;
    if (method === 'abort') calls.get(of)?.controller.abort();
    else if (method === 'input') {
      const { input } = calls.get(of);
      if (message.data === null) input.end();
      else if (!input.write(Buffer.from(message.data))) await once(input, 'drain');
    } else if (method === 'next') result = await calls.get(of).iterator.next();
    else if (method === 'return') result = await calls.get(of)?.iterator.return();
    else result = await answer(message);
    process.send({ id, result });
  } catch (error) {
    process.send({ id, error: plainError(error) });
  }
}
