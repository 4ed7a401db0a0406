import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync } from 'node:fs';
import { confine } from './confine.js';
import type { FileServer } from './files/file-call.js';
import { sweepLaunch } from './launch-end.js';
import { type LaunchFolder, LaunchFolders } from './launch-folder.js';
import type { LaunchAnswer, LaunchRequest } from './launch-request.js';
import { OutputTail } from './output-tail.js';
import type { ServedPlace } from './served-place.js';
import { complaintOf, prepareLaunchFolder, supervisorCommand } from './start.js';
import { type AgentTask, FolderSupervisor } from './supervisor.js';

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY } = constants;
const LOG_FLAGS = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW;

/** The maximum output of a short program in an error message. */
const OUTPUT_BYTES = 4096;

/** How long a program that serves files may take to end once it is not needed any more. */
const FILES_END_MS = 2000;

/** The supervisor of a place with launches, such as a container, for a program that runs there. */
export function placeSupervisor(place: ServedPlace): FolderSupervisor {
  const folders = new LaunchFolders(place.launches);
  return new FolderSupervisor({
    folders,
    prepare: (folder) => prepareLaunchFolder(folder, null),
    start: (folder, request) => startMain(place, folder, request),
    clearUp: async (launchId, unsupervised) => {
      if (unsupervised) await sweepLaunch(folders.launch(launchId), place.agentUser);
    },
    asAgent: (task, signal) => asAgent(place, task, signal),
    openFiles: () => openFiles(place),
    disk: async () => place.disk,
    killStopped: true,
  });
}

/** Starts a supervisor, which detaches from this process when it has answered. */
export async function startMain(
  place: Pick<ServedPlace, 'detach' | 'confine' | 'main'>,
  folder: LaunchFolder,
  request: LaunchRequest,
): Promise<LaunchAnswer> {
  const how = { clearEnvironment: true, detach: place.detach ?? false };
  const [program = '', ...args] = supervisorCommand(folder.path, place.confine, place.main, how);
  const log = openSync(folder.log, LOG_FLAGS, 0o600);
  const child = spawn(program, args, { detached: true, env: {}, stdio: ['pipe', 'pipe', log] });
  closeSync(log);
  child.on('error', () => undefined);
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) return { ok: false, message: 'it has no pipes' };
  let said = '';
  try {
    stdin.on('error', () => undefined).end(JSON.stringify(request));
    for await (const data of stdout.setEncoding('utf8') as AsyncIterable<string>) {
      said += data;
      if (said.includes('\n')) return JSON.parse(said) as LaunchAnswer;
    }
  } finally {
    stdout.destroy();
    child.unref();
  }
  return { ok: false, message: await complaintOf(folder) };
}

async function asAgent(
  place: ServedPlace,
  { task, operands, environment, stdin }: AgentTask,
  signal: AbortSignal,
): Promise<{ exitCode: number; output: string }> {
  const rights = { user: place.agentUser, dropCapabilities: true, noNewPrivileges: true };
  const how = { ...rights, ...task, close: true, dieWithParent: true };
  const [program = '', ...args] = [...confine(place.confine, how), ...operands];
  const child = spawn(program, args, { env: environment, signal, killSignal: 'SIGKILL' });
  const output = new OutputTail(OUTPUT_BYTES);
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data: Buffer) => output.add(data));
  }
  child.stdin.on('error', () => undefined).end(stdin);
  const [exitCode] = (await once(child, 'close', { signal })) as [number | null];
  return { exitCode: exitCode ?? 1, output: output.toString().trim() };
}

/** Starts the program that serves one access to files. It removes its temporary file if its input ends early. */
async function openFiles(place: ServedPlace): Promise<FileServer> {
  const rights = { user: place.agentUser, dropCapabilities: true, noNewPrivileges: true };
  const how = { ...rights, files: true, close: true, dieWithParent: true };
  const [program = '', ...args] = confine(place.confine, how);
  const child = spawn(program, args, { env: {}, stdio: ['pipe', 'pipe', 'ignore'] });
  child.on('error', () => undefined);
  const { stdin, stdout } = child;
  stdin.once('close', () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const kill = setTimeout(() => child.kill('SIGKILL'), FILES_END_MS);
    child.once('exit', () => clearTimeout(kill));
  });
  return { stdin, stdout };
}
