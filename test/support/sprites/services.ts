import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { killTree, signalCommand, type Machine } from './vm.js';

/** As the client sends it. */
export interface ServiceDefinition {
  cmd: string;
  args?: string[];
  env?: Record<string, string>;
  dir?: string;
  needs?: string[];
  http_port?: number;
}

interface Service {
  definition: ServiceDefinition;
  child?: ChildProcess | undefined;
  /** Nobody has stopped it. */
  wanted: boolean;
  restarts: number;
  startedAt?: Date;
}

const RESTART_MS = 50;

/** Long-running processes of a sprite: started again when they end, and after a cold wake. */
export class Services {
  private readonly services = new Map<string, Service>();

  constructor(private readonly machine: Machine) {}

  list() {
    return [...this.services.keys()].map((name) => this.describe(name));
  }

  has(name: string): boolean {
    return this.services.has(name);
  }

  describe(name: string) {
    const service = this.services.get(name);
    if (service === undefined) return undefined;
    const runs = service.child !== undefined;
    return {
      name,
      ...service.definition,
      state: {
        name,
        status: runs ? 'running' : service.wanted ? 'starting' : 'stopped',
        pid: service.child?.pid,
        started_at: service.startedAt,
        restart_count: service.restarts,
      },
    };
  }

  /** Defines a service and starts it. Another definition replaces a running one. */
  async put(name: string, definition: ServiceDefinition): Promise<void> {
    await this.stop(name);
    this.services.set(name, { definition, wanted: true, restarts: 0 });
    this.run(name);
  }

  start(name: string): void {
    const service = this.services.get(name);
    if (service === undefined || service.child !== undefined) return;
    service.wanted = true;
    this.run(name);
  }

  async stop(name: string): Promise<void> {
    const service = this.services.get(name);
    if (service === undefined) return;
    service.wanted = false;
    await end(service.child);
  }

  async remove(name: string): Promise<void> {
    await this.stop(name);
    this.services.delete(name);
  }

  signal(name: string, signal: NodeJS.Signals): boolean {
    const child = this.services.get(name)?.child;
    if (child === undefined) return false;
    signalCommand(child.pid ?? 0, signal);
    return true;
  }

  /** What the vendor does when it updates its own programs: ends each service with all below it, and starts it. */
  async restartAll(): Promise<void> {
    for (const [name, service] of this.services) {
      if (!service.wanted) continue;
      await this.stop(name);
      this.start(name);
    }
  }

  /** After a cold wake. */
  startWanted(): void {
    for (const [name, service] of this.services) if (service.wanted) this.run(name);
  }

  private run(name: string): void {
    const service = this.services.get(name);
    if (service === undefined || service.child !== undefined || !this.machine.runs) return;
    const { cmd, args = [], env, dir } = service.definition;
    const child = this.machine.spawn({ command: [cmd, ...args], env, directory: dir });
    service.child = child;
    service.startedAt = new Date();
    child.stdin?.end();
    child.stdout?.resume();
    child.stderr?.resume();
    child.on('error', () => undefined);
    child.on('exit', () => {
      service.child = undefined;
      if (!service.wanted || !this.machine.runs || this.services.get(name) !== service) return;
      service.restarts += 1;
      void delay(RESTART_MS, undefined, { ref: false }).then(
        () => service.wanted && this.run(name),
      );
    });
  }
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  killTree(child.pid ?? 0, 'SIGKILL');
  await ended;
}
