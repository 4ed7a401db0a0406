import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'pg';
import { cpuMs, residentBytes } from '../lib/processes.mjs';

const SANDBOX = /^[0-9a-f-]{36}$/;

/** Inspects a running service from outside, after collecting its garbage through Node's inspector. */
export class Probe {
  static async open(service) {
    const { findEmbeddedPostgres } =
      await import('../../dist/src/database/embedded/embedded-postgres.js');
    const { url } = await findEmbeddedPostgres(service.dataDir);
    const probe = new Probe();
    probe.service = service;
    probe.database = new Pool({ connectionString: url, max: 1 });
    probe.database.on('error', () => undefined);
    probe.inspector = new WebSocket(service.inspectorUrl);
    await new Promise((resolve, reject) => {
      probe.inspector.addEventListener('open', resolve);
      probe.inspector.addEventListener('error', reject);
    });
    probe.emptyBytes = await probe.databaseBytes();
    return probe;
  }

  /** @returns the current use of resources, and the total CPU time. */
  async sample() {
    await this.ask('HeapProfiler.collectGarbage');
    const { result } = await this.ask('Runtime.evaluate', {
      expression: '(({ heapUsed, external }) => heapUsed + external)(process.memoryUsage())',
    });
    const { pid } = this.service;
    return {
      residentMb: residentBytes(pid) / 1e6,
      usedMb: result.value / 1e6,
      descriptors: readdirSync(`/proc/${pid}/fd`).length,
      sandboxes: this.sandboxes(),
      databaseBytes: (await this.databaseBytes()) - this.emptyBytes,
      cpuMs: cpuMs(pid),
    };
  }

  /** The folders of sandboxes. */
  sandboxes() {
    return readdirSync(join(this.service.dataDir, 'sandboxes')).filter((name) => SANDBOX.test(name))
      .length;
  }

  /** The processes of sandboxes, regardless of their parent. */
  supervisors() {
    const folder = join(this.service.dataDir, 'sandboxes');
    return readdirSync('/proc').filter((entry) => /^\d+$/.test(entry) && names(entry, folder))
      .length;
  }

  /** @returns the sandboxes and processes that are left after they had time to end. */
  async untilEmpty(limitMs) {
    const end = performance.now() + limitMs;
    for (;;) {
      const left = { sandboxes: this.sandboxes(), processes: this.supervisors() };
      if (left.sandboxes + left.processes === 0 || performance.now() > end) return left;
      await delay(500);
    }
  }

  async close() {
    this.inspector.close();
    await this.database.end();
  }

  async databaseBytes() {
    const { rows } = await this.database.query(
      'SELECT pg_database_size(current_database())::float8 AS bytes',
    );
    return rows[0].bytes;
  }

  ask(method, params = {}) {
    this.asked = (this.asked ?? 0) + 1;
    const id = this.asked;
    return new Promise((resolve, reject) => {
      const answer = ({ data }) => {
        const message = JSON.parse(data);
        if (message.id !== id) return;
        this.inspector.removeEventListener('message', answer);
        if (message.error) reject(new Error(message.error.message));
        else resolve(message.result);
      };
      this.inspector.addEventListener('message', answer);
      this.inspector.send(JSON.stringify({ id, method, params }));
    });
  }
}

function names(pid, folder) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(folder);
  } catch {
    return false;
  }
}
