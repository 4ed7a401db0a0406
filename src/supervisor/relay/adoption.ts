import type { ChildProcess } from 'node:child_process';
import type { AdoptedListener, NativeHandle } from './binding.js';
import type { AdoptedMessage, ListenerMessage, ListenerSpec } from './listener-plan.js';

/**
 * The command that makes the sockets of a plan in its network namespace and passes them on, see `native/listen.c`.
 * @param program its path, see `listenProgram`
 */
export function listenCommand(program: string, plan: readonly ListenerSpec[]): [string, string] {
  const texts = plan.map(({ role, address, port, optional }) =>
    [role === 'dns' ? 'udp' : 'tcp', address, port, ...(optional ? ['optional'] : [])].join(','),
  );
  return [program, texts.join(' ')];
}

/**
 * Receives the sockets that {@link listenCommand} makes in a network namespace, acknowledges them, and closes the channel:
 * programs that the child runs later must not be able to send messages to this process. Node emits no 'close' event for
 * a child whose channel its parent has closed, so wait for 'exit' and for the ends of its output streams.
 * @param child spawned with an 'ipc' channel whose descriptor reaches the command
 * @param plan what the command was given
 * @throws Error if the child exits, closes the channel or stays silent before all sockets have arrived; those that
 *   arrived are closed
 */
export function adoptListeners(
  child: ChildProcess,
  plan: readonly ListenerSpec[],
  timeoutMs: number,
): Promise<AdoptedListener[]> {
  const adopted: AdoptedListener[] = [];
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
    const onDisconnect = (): void => fail(new Error("the relay's listeners closed the channel"));
    const onMessage = (message: unknown, handle: unknown): void => {
      const { kind, index, skipped } = message as ListenerMessage;
      const spec = plan[index];
      if (kind !== 'listener' || spec === undefined) return;
      if (!skipped) adopted.push({ spec, handle: handle as NativeHandle });
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
