import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { NetworkPolicy } from '../../sandbox-driver.js';
import type { Arrangement, PodRelaySetup } from './arrangement.js';

const READY_MS = 20_000;
const RESTART_MS = 500;

/** The relay of the pod, a process of its own, so that what a sandbox sends delays nothing else. */
export class PodNetwork {
  private current: PodRelaySetup | undefined;
  private relay: ChildProcess | undefined;
  private changes: Promise<void> = Promise.resolve();

  /** @param file keeps the network policy */
  constructor(private readonly file: string) {}

  /** Applies what a worker has sent, and resolves when it is in force. */
  arrange(arrangement: Arrangement): Promise<void> {
    const change = this.changes.then(() => this.apply(arrangement));
    this.changes = change.catch(() => undefined);
    return change;
  }

  private async apply({ link, gateways, privateHosts, network }: Arrangement): Promise<void> {
    if (network !== undefined) this.store(network);
    const policy = network ?? this.stored();
    if (link === undefined || policy === undefined) return;
    const wanted: PodRelaySetup = { link, gateways, privateHosts, policy };
    if (JSON.stringify(wanted) === JSON.stringify(this.current)) return;
    this.current = undefined;
    await ended(this.relay);
    await this.start(wanted);
    this.current = wanted;
  }

  /** Starts the relay, and again whenever it ends. */
  private async start(setup: PodRelaySetup): Promise<void> {
    const program = fileURLToPath(new URL('relay.js', import.meta.url));
    const relay = spawn(process.execPath, [...process.execArgv, program], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.relay = relay;
    relay.on('error', () => undefined);
    relay.stdin.on('error', () => undefined).end(JSON.stringify(setup));
    relay.once('close', () => {
      if (this.current !== setup) return;
      setTimeout(() => {
        if (this.current === setup) this.start(setup).catch(() => process.exit(1));
      }, RESTART_MS);
    });
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('the relay does not start')), READY_MS);
      relay.once('close', () => reject(new Error('the relay has ended')));
      relay.stdout.on('data', (data: Buffer) => {
        if (!data.toString('latin1').startsWith('ready\n')) return process.stdout.write(data);
        clearTimeout(timer);
        return resolve();
      });
    });
  }

  private stored(): NetworkPolicy | undefined {
    try {
      return JSON.parse(readFileSync(this.file, 'utf8')) as NetworkPolicy;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }

  /** Writes it atomically, also in case the machine crashes. */
  private store(network: NetworkPolicy): void {
    writeFileSync(`${this.file}.new`, JSON.stringify(network), { flush: true });
    renameSync(`${this.file}.new`, this.file);
  }
}

async function ended(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const closed = new Promise((resolve) => void child.once('close', resolve));
  child.kill('SIGKILL');
  await closed;
}
