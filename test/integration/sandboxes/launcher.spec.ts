import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, describe, expect, it } from '@jest/globals';
import { Launcher } from '../../../src/sandboxes/driver/local/launcher/launcher.js';

/** What a command's shell says of the process that started it. */
const PARENT = { argv: ['/bin/sh', '-c', 'echo $PPID'] };

const stateOf = (pid: number): string | undefined =>
  /^State:\s+(\w)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];

describe('the process that starts programs', () => {
  const launcher = new Launcher(process.execPath);
  afterEach(() => launcher.close());

  const starter = async (): Promise<number> => Number((await launcher.run(PARENT)).output);

  it('is replaced when it has died and nobody has heard of it yet', async () => {
    const first = await starter();
    process.kill(first, 'SIGKILL');
    // Without a turn of the event loop: what tells of its end waits.
    while (stateOf(first) !== 'Z');
    const second = await starter();
    expect(second).toBeGreaterThan(0);
    expect(second).not.toBe(first);
  });

  it('takes what it had begun down with it as failed, and that alone', async () => {
    const first = await starter();
    const begun = launcher.run({ argv: ['/bin/sleep', '600'] });
    const sleeper = async (): Promise<number> => {
      for (;;) {
        const children = readFileSync(`/proc/${first}/task/${first}/children`, 'utf8').trim();
        if (children !== '') return Number(children);
        await delay(5);
      }
    };
    const pid = await sleeper();
    process.kill(first, 'SIGKILL');
    await expect(begun).rejects.toMatchObject({ kind: 'failed' });
    process.kill(pid, 'SIGKILL');
    expect(await starter()).not.toBe(first);
  });

  it('ends a program that is not wanted any more, with all that it started', async () => {
    const stop = new AbortController();
    // No other run on this host sleeps for this time.
    const seconds = String(1_000_000 + process.pid);
    const aborted = launcher.run({
      argv: ['/bin/sh', '-c', `sleep ${seconds} & sleep ${seconds}`],
      signal: stop.signal,
    });
    const sleepers = () =>
      readdirSync('/proc').filter((name) => {
        try {
          return (
            readFileSync(`/proc/${name}/cmdline`, 'latin1') === ['sleep', seconds, ''].join('\0')
          );
        } catch {
          return false;
        }
      });
    while (sleepers().length < 2) await delay(5);
    stop.abort();
    await expect(aborted).rejects.toMatchObject({ kind: 'aborted' });
    while (sleepers().length > 0) await delay(5);
  });
});
