import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as delay } from 'node:timers/promises';

// The environment that Jest itself would use; found from Jest, which brings it along.
const require = createRequire(import.meta.url);
const { TestEnvironment } = require(
  require.resolve('jest-environment-node', { paths: [require.resolve('jest')] }),
);

/** What a file may not leave open, by the names that Node gives to them. */
const WATCHED = ['TCPServerWrap', 'PipeServerWrap', 'TCPSocketWrap', 'ProcessWrap', 'Timeout'];
/** Ends of connections and processes are reported a little after they happened, on a busy machine a little more. */
const GRACE_MS = 10_000;
const MARK = 'TEST_FILE_MARK';
const SHOWN_LINES = 40;
/** Lines about each request and each route. */
const ROUTINE = /"context":"(Http|Audit|RouterExplorer|RoutesResolver|InstanceLoader)"/;

/**
 * Fails a test file that leaves something behind after its last hook: a server, a connection, a
 * timer or a process, be it a child or a descendant that went its own way. What cannot be seen:
 * threads, and detached processes that were started with a cleared environment.
 */
export default class LeakCheckEnvironment extends TestEnvironment {
  async setup() {
    await super.setup();
    this.before = openResources();
    this.childrenBefore = new Set(children());
    this.mark = `${process.pid}-${performance.now()}`;
    process.env[MARK] = this.mark;
  }

  async handleTestEvent(event) {
    if (event.name === 'test_done' && event.test.errors.length > 0) {
      this.failed = true;
      this.showServices(event.test.name);
    }
    // What a setup file has started must outlive the test file's own afterAll hooks, so it ends here, not in one.
    if (event.name === 'run_finish') await this.global.afterTestFile?.();
  }

  /** What the services that run said last, which often explains a failure. They put it in a global of the test file. */
  showServices(test) {
    for (const [url, logs] of this.global.serviceLogs ?? []) {
      const lines = logs()
        .trimEnd()
        .split('\n')
        .filter((line) => !ROUTINE.test(line))
        .slice(-SHOWN_LINES);
      process.stderr.write(`\nAt the end of "${test}" the service at ${url} had said:\n`);
      process.stderr.write(`${lines.map((line) => `  ${line.slice(0, 500)}`).join('\n')}\n`);
    }
  }

  async teardown() {
    const leaks = await this.findLeaks();
    delete process.env[MARK];
    await super.teardown();
    if (leaks.length === 0) return;
    const complaint = `the test file left behind: ${leaks.join(', ')}`;
    // An error here takes the place of the file's results. Where a test has failed, that is what has to be read.
    if (!this.failed) throw new Error(complaint);
    process.stderr.write(`${complaint}\n`);
  }

  async findLeaks() {
    const deadline = Date.now() + GRACE_MS;
    for (;;) {
      const leaks = [...this.leakedResources(), ...this.leakedProcesses()];
      if (leaks.length === 0 || Date.now() > deadline) return leaks;
      await delay(20);
    }
  }

  leakedResources() {
    const now = openResources();
    return WATCHED.filter((name) => (now[name] ?? 0) > (this.before[name] ?? 0)).map(
      (name) => `${now[name] - (this.before[name] ?? 0)} × ${name}`,
    );
  }

  leakedProcesses() {
    const own = children().filter((pid) => !this.childrenBefore.has(pid));
    return [...new Set([...own, ...marked(this.mark)])].map(
      (pid) => `process ${pid} of ${parentOf(pid)} in state ${stateOf(pid)} (${title(pid)})`,
    );
  }
}

function openResources() {
  const counts = {};
  for (const name of process.getActiveResourcesInfo()) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function children() {
  return processes().filter((pid) => parentOf(pid) === process.pid && stateOf(pid) !== 'Z');
}

/** The name in brackets may itself hold spaces and brackets; what counts comes after it. */
const statOf = (pid) => (read(`/proc/${pid}/stat`).split(') ').at(-1) ?? '').split(' ');
const stateOf = (pid) => statOf(pid)[0];
const parentOf = (pid) => Number(statOf(pid)[1]);

function marked(mark) {
  return processes().filter(
    (pid) => pid !== process.pid && read(`/proc/${pid}/environ`).includes(`${MARK}=${mark}\0`),
  );
}

function processes() {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

const title = (pid) => read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim().slice(-200);

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
