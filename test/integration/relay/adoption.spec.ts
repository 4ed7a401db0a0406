import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { adoptListeners } from '../../../src/sandboxes/shared/relay/adoption.js';
import type { ChildProcess } from 'node:child_process';
import type { ListenerSpec } from '../../../src/sandboxes/shared/relay/listener-plan.js';

const LISTENERS = join(process.cwd(), 'dist/src/sandboxes/shared/relay/listeners.js');
const any: ListenerSpec = { role: 'relay', address: '127.0.0.1', port: 0 };

function start(
  args: string[],
  channel: 'ipc' | 'ignore' = 'ipc',
): { child: ChildProcess; ended: Promise<[number | null, string]> } {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe', channel] });
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const ended = Promise.all([
    new Promise<number | null>((resolve) => child.once('exit', resolve)),
    new Promise((resolve) => child.stderr?.once('end', resolve)),
  ]).then(([code]): [number | null, string] => [code, stderr]);
  return { child, ended };
}

describe('adoptListeners', () => {
  it('takes the sockets, lets the child go on, and closes the channel', async () => {
    const plan: ListenerSpec[] = [
      any,
      { ...any, role: 'dns' },
      { ...any, address: '192.0.2.250', port: 9, optional: true },
    ];
    const { child, ended } = start([LISTENERS, JSON.stringify(plan)]);
    const adopted = await adoptListeners(child, plan, 10_000);
    expect(adopted.map((listener) => listener.spec)).toEqual(plan.slice(0, 2));
    expect(child.connected).toBe(false);
    expect(await ended).toEqual([0, '']);
    for (const { handle } of adopted) {
      expect(handle.address()).toMatchObject({ address: '127.0.0.1' });
      handle.close();
    }
  });

  it('fails with the cause on stderr if a socket cannot be bound', async () => {
    const plan: ListenerSpec[] = [any, { ...any, address: '198.51.100.250', port: 9 }];
    const { child, ended } = start([LISTENERS, JSON.stringify(plan)]);
    await expect(adoptListeners(child, plan, 10_000)).rejects.toThrow("the relay's listeners");
    expect(await ended).toEqual([
      1,
      'relay listeners: cannot listen on tcp 198.51.100.250 port 9: EADDRNOTAVAIL\n',
    ]);
  });

  it('fails if the child stays silent, and lets go of it', async () => {
    const { child, ended } = start([
      '-e',
      "process.on('message', () => undefined).on('disconnect', () => process.exit(7))",
    ]);
    await expect(adoptListeners(child, [any], 500)).rejects.toThrow('within 500 ms');
    expect((await ended)[0]).toBe(7);
  });

  it('fails if the program is not there', async () => {
    const child = spawn('/nonexistent', [], { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
    await expect(adoptListeners(child, [any], 10_000)).rejects.toThrow('ENOENT');
  });

  it('says so if it is started without a channel', async () => {
    expect(await start([LISTENERS, '[]'], 'ignore').ended).toEqual([
      1,
      'relay listeners: started without an IPC channel\n',
    ]);
  });
});
