import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, Server } from 'node:net';
import { spawn, type ChildProcess } from 'node:child_process';
import { describe, expect, it } from '@jest/globals';
import { packageRoot } from '../../../src/common/package-root.js';
import { listenProgram } from '../../../src/supervisor/confine.js';
import { adoptListeners, listenCommand } from '../../../src/supervisor/relay/adoption.js';
import type { ListenerSpec } from '../../../src/supervisor/relay/listener-plan.js';

const listen = (plan: readonly ListenerSpec[]) => listenCommand(listenProgram(packageRoot()), plan);
const any: ListenerSpec = { role: 'relay', address: '127.0.0.1', port: 0 };

function start(
  [program, ...args]: [string, ...string[]],
  channel: 'ipc' | 'ignore' = 'ipc',
): { child: ChildProcess; ended: Promise<[number | null, string]> } {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe', channel] });
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
    const { child, ended } = start(listen(plan));
    const adopted = await adoptListeners(child, plan, 10_000);
    expect(adopted.map((listener) => listener.spec)).toEqual(plan.slice(0, 2));
    expect(child.connected).toBe(false);
    expect(await ended).toEqual([0, '']);
    for (const { spec, handle } of adopted) {
      const served =
        spec.role === 'dns' ? createSocket('udp4') : createServer({ pauseOnConnect: true });
      const listening = once(served, 'listening');
      if (served instanceof Server) served.listen(handle);
      else served.bind(handle);
      await listening;
      expect(served.address()).toMatchObject({ address: '127.0.0.1' });
      served.close();
    }
  });

  it('fails with the cause on stderr if a socket cannot be bound', async () => {
    const plan: ListenerSpec[] = [any, { ...any, address: '198.51.100.250', port: 9 }];
    const { child, ended } = start(listen(plan));
    await expect(adoptListeners(child, plan, 10_000)).rejects.toThrow("the relay's listeners");
    expect(await ended).toEqual([
      1,
      'relay listeners: cannot listen on tcp 198.51.100.250 port 9: Cannot assign requested address\n',
    ]);
  });

  it('fails if the child stays silent, and lets go of it', async () => {
    const { child, ended } = start([
      process.execPath,
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
    expect(await start(listen([]), 'ignore').ended).toEqual([
      1,
      'relay listeners: started without an IPC channel\n',
    ]);
  });
});
