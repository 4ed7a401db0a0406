import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const START_MS = 120_000;

/** A Docker engine of a test's own, which it may stop. Has no network beside those of its host and of nobody. */
export class OwnEngine {
  private child: ChildProcess | undefined;

  private constructor(
    private readonly folder: string,
    private readonly args: readonly string[],
  ) {}

  /** @param args added to its command line */
  static async create(args: readonly string[] = []): Promise<OwnEngine> {
    const engine = new OwnEngine(await mkdtemp(join(tmpdir(), 'engine-')), args);
    await engine.start();
    return engine;
  }

  get host(): string {
    return `unix://${this.socket}`;
  }

  async start(): Promise<void> {
    this.child = spawn(
      'setpriv',
      [
        // A test run that is killed does not leave an engine.
        ['--pdeathsig', 'TERM', 'dockerd'],
        ['--data-root', join(this.folder, 'data'), '--exec-root', join(this.folder, 'exec')],
        ['--pidfile', join(this.folder, 'pid'), '--host', this.host],
        ['--bridge=none', '--iptables=false', '--ip6tables=false', '--shutdown-timeout', '3'],
        this.args,
      ].flat(),
      { stdio: 'ignore' },
    );
    const until = Date.now() + START_MS;
    while (!(await this.answers())) {
      if (Date.now() > until) throw new Error('the engine did not start');
      await delay(100);
    }
  }

  async stop(): Promise<void> {
    const { child } = this;
    this.child = undefined;
    if (child === undefined || child.exitCode !== null) return;
    const gone = new Promise((resolve) => void child.once('exit', resolve));
    child.kill('SIGTERM');
    await gone;
  }

  async remove(): Promise<void> {
    await this.stop();
    // The engine leaves the host's network namespace mounted there.
    spawnSync('umount', ['--lazy', join(this.folder, 'exec/netns/default')], { stdio: 'ignore' });
    await rm(this.folder, { recursive: true, force: true });
  }

  private get socket(): string {
    return join(this.folder, 'socket');
  }

  private answers(): Promise<boolean> {
    return new Promise((resolve) => {
      get({ socketPath: this.socket, path: '/_ping' }, (response) => {
        response.resume();
        resolve(response.statusCode === 200);
      }).on('error', () => resolve(false));
    });
  }
}
