import type { ChildProcess } from 'node:child_process';
import type { BoundListener } from './binding.js';
import type { AdoptedMessage, ListenerMessage, ListenerSpec } from './listener-plan.js';

/**
 * Takes the sockets that `listeners.js` makes inside of a network namespace, tells it that they have arrived, and closes
 * the channel for good: whatever else the child runs must not be able to talk to this process.
 * Mind that Node emits no 'close' event for a child whose channel its parent has closed: wait for 'exit', and for the
 * ends of its output streams.
 * @param child spawned with an 'ipc' channel whose descriptor reaches `listeners.js`
 * @param plan what `listeners.js` was told to make
 * @throws Error if the child ends, lets go of the channel or stays silent before all sockets are here; those that came
 * are closed
 */
export function adoptListeners(
  child: ChildProcess,
  plan: readonly ListenerSpec[],
  timeoutMs: number,
): Promise<BoundListener[]> {
  const adopted: BoundListener[] = [];
  let arrived = 0;
  return new Promise((resolve, reject) => {
    const stopListening = (): void => {
      clearTimeout(timer);
      child.off('message', onMessage).off('exit', onExit).off('error', fail);
      child.off('disconnect', onDisconnect);
    };
    const fail = (error: Error): void => {
      stopListening();
      if (child.connected) child.disconnect();
      for (const { handle } of adopted) handle.close();
      reject(error);
    };
    const onExit = (code: number | null, signal: NodeJS.Signals | null): void =>
      fail(new Error(`the relay's listeners ended (${signal ?? `exit code ${String(code)}`})`));
    const onDisconnect = (): void => fail(new Error("the relay's listeners let go of the channel"));
    const onMessage = (message: unknown, handle: unknown): void => {
      const { kind, index, skipped } = message as ListenerMessage;
      const spec = plan[index];
      if (kind !== 'listener' || spec === undefined) return;
      if (!skipped) adopted.push({ spec, handle: handle as BoundListener['handle'] });
      arrived += 1;
      if (arrived < plan.length) return;
      const done: AdoptedMessage = { kind: 'adopted' };
      child.send(done, (error) => {
        if (error) return fail(error);
        stopListening();
        child.disconnect();
        resolve(adopted);
      });
    };
    const timer = setTimeout(
      () => fail(new Error(`the relay's listeners did not arrive within ${String(timeoutMs)} ms`)),
      timeoutMs,
    );
    child.on('message', onMessage).on('exit', onExit).on('error', fail);
    child.on('disconnect', onDisconnect);
  });
}
