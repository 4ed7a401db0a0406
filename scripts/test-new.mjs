import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { complain, say } from './lib/output.mjs';
import { NODE, ROOT, StepError, prepare } from './lib/project.mjs';
import { startEngine } from './lib/docker-engine.mjs';
import { ensureSystemPackages } from './lib/system-packages.mjs';
import { beginTestRun } from './lib/test-run.mjs';
import { STAGES } from './lib/test-stages.mjs';

const USAGE = `npm run test:new [-- OPTIONS] [PATH...]

Runs each test file that a change adds or touches ten times while all cores are busy, to find those that fail now and
then. Files that were only moved do not count.

  PATH             test files or folders to run instead
  --base COMMIT    what the change is compared with; default: where it left main, on main the previous commit
  --times NUMBER   runs of each file; default: 10
  --minutes NUMBER begins no further run after so many minutes; default: 20
`;

/** Keeps a core busy, and ends with the process that started it, also if that one is killed. */
const BURN = `
const parent = process.ppid;
const burn = () => {
  for (const end = Date.now() + 100; Date.now() < end; );
  if (process.ppid === parent) setImmediate(burn);
};
burn();
`;

/** The Jest that runs, and the signal that ended it. */
let running;
let stopped;
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    stopped = signal;
    running?.kill(signal);
  });
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
}

async function main() {
  const { help, base, times, minutes, paths } = readOptions();
  if (help) {
    say(USAGE);
    return 0;
  }
  const files = paths.length > 0 ? paths : touchedTests(base ?? defaultBase());
  if (files.length === 0) {
    say('The change adds or touches no test file.');
    return 0;
  }
  const endTestRun = beginTestRun();
  let stopEngine = async () => undefined;
  const burners = [];
  try {
    ensureSystemPackages(say);
    prepare(say);
    say('Looking up which projects run the test files …');
    const projects = await projectsOf(files);
    if (STAGES.some((stage) => stage.engine && stage.projects.some((name) => projects.has(name)))) {
      stopEngine = await startEngine(say);
    }
    for (let core = 0; core < availableParallelism(); core += 1) {
      burners.push(spawn(NODE, ['-e', BURN], { stdio: 'ignore' }));
    }
    return await runAll(projects, times, Date.now() + minutes * 60_000);
  } finally {
    for (const burner of burners) burner.kill('SIGKILL');
    await stopEngine();
    endTestRun();
  }
}

function readOptions() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        base: { type: 'string' },
        times: { type: 'string', default: '10' },
        minutes: { type: 'string', default: '20' },
        help: { type: 'boolean' },
      },
    });
    if (values.help) return { help: true, paths: positionals };
    const [times, minutes] = [Number(values.times), Number(values.minutes)];
    if (!(Number.isInteger(times) && times > 0 && minutes > 0)) {
      throw new StepError(`--times and --minutes take positive numbers\n\n${USAGE}`);
    }
    const paths = positionals.map((path) => relative(ROOT, resolve(path)));
    const missing = paths.filter((path) => !existsSync(join(ROOT, path)));
    if (missing.length > 0) throw new StepError(`There is no ${missing.join(', ')}`);
    return { base: values.base, times, minutes, paths };
  } catch (error) {
    if (error instanceof StepError) throw error;
    throw new StepError(`${error.message}\n\n${USAGE}`);
  }
}

function git(...args) {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  if (status !== 0) throw new StepError(`git ${args[0]} failed: ${stderr.trim()}`);
  return stdout.trim();
}

function isCommit(name) {
  const { status } = spawnSync('git', ['rev-parse', '--verify', '--quiet', `${name}^{commit}`], {
    cwd: ROOT,
    stdio: 'ignore',
  });
  return status === 0;
}

function defaultBase() {
  const trunk = ['main', 'origin/main'].find(isCommit);
  if (trunk === undefined) throw new StepError('There is no branch main here: name a --base');
  const base = git('merge-base', 'HEAD', trunk);
  return base === git('rev-parse', 'HEAD') ? 'HEAD~1' : base;
}

/** Test files that the commits since then and the work tree add or change. */
function touchedTests(base) {
  if (!isCommit(base)) throw new StepError(`There is no commit ${base}`);
  const changed = git('diff', '--name-status', '--find-renames=100%', base)
    .split('\n')
    .map((line) => line.split('\t'))
    .filter(([status]) => /^[AMR]/.test(status) && status !== 'R100')
    .map((fields) => fields.at(-1));
  const untracked = git('ls-files', '--others', '--exclude-standard').split('\n');
  return [...changed, ...untracked].filter(
    (path) => path.endsWith('.spec.ts') && existsSync(join(ROOT, path)),
  );
}

/**
 * @param {string[]} paths of files, and of folders with files
 * @returns {Promise<Map<string, string[]>>} the files by the first project that runs them
 */
async function projectsOf(paths) {
  const found = new Map();
  const known = new Set();
  const used = new Set();
  const projects = STAGES.flatMap((stage) => stage.projects ?? []);
  for (const project of projects) {
    const { stdout } = await jest(['--listTests', `--selectProjects=${project}`]);
    const own = stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((file) => relative(ROOT, file))
      .filter((file) => {
        const by = paths.find((path) => file === path || file.startsWith(`${path}/`));
        if (by === undefined || known.has(file)) return false;
        used.add(by);
        known.add(file);
        return true;
      });
    if (own.length > 0) found.set(project, own);
  }
  const unused = paths.filter((path) => !used.has(path));
  if (unused.length > 0) throw new StepError(`No project of Jest runs ${unused.join(', ')}`);
  return found;
}

/** @returns {Promise<{ok: boolean, stdout: string, stderr: string}>} what Jest says, in a group that ends with this process */
async function jest(args) {
  const child = spawn('npm', ['run', '--silent', 'jest', '--', ...args], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running = child;
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  if (stopped !== undefined) throw new StepError(`Stopped by ${stopped}`);
  return { ok: code === 0, stdout, stderr };
}

/** Runs each file once, then each a second time, and so on. @returns the exit code */
async function runAll(projects, times, giveUpAt) {
  const results = new Map();
  for (let round = 0; round < times; round += 1) {
    for (const [project, files] of projects) {
      for (const file of files) {
        if (Date.now() > giveUpAt) continue;
        const { ok, stderr } = await jest([file, `--selectProjects=${project}`]);
        const result = results.get(file) ?? { runs: 0, failures: [] };
        result.runs += 1;
        if (!ok) result.failures.push(stderr);
        results.set(file, result);
        say(`${ok ? 'ok    ' : 'FAILED'}  ${round + 1}/${times}  ${file}`);
      }
    }
  }
  for (const [file, { failures }] of results) {
    if (failures.length > 0) say(`\n=== the last failure of ${file}\n${failures.at(-1)}`);
  }
  say('');
  const files = [...projects.values()].flat();
  for (const file of files) {
    const { runs = 0, failures = [] } = results.get(file) ?? {};
    say(`${String(failures.length).padStart(3)} of ${runs} runs failed  ${file}`);
  }
  const short = files.filter((file) => (results.get(file)?.runs ?? 0) < times).length;
  if (short > 0) say(`\n${short} files ran fewer than ${times} times: the time was over.`);
  const unproved = files.some((file) => !results.has(file));
  const failed = [...results.values()].some(({ failures }) => failures.length > 0);
  return failed || unproved ? 1 : 0;
}
