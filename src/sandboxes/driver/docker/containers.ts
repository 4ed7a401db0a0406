import type Docker from 'dockerode';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { statusOf, unless } from './engine.js';
import { textOf } from './exec.js';

const ENDED_WITHOUT_A_WORD = 'it ended without a word';
const START_MS = 20_000;

/** Creates a container, or finds the existing one with its name. */
export async function ensureContainer(
  docker: Docker,
  spec: Docker.ContainerCreateOptions,
): Promise<Docker.Container> {
  try {
    return await docker.createContainer(spec);
  } catch (error) {
    if (statusOf(error) === 409 && spec.name !== undefined) return docker.getContainer(spec.name);
    throw error;
  }
}

/** Starts a container unless it runs already. @throws SandboxError `gone` if there is none */
export async function startContainer(container: Docker.Container): Promise<void> {
  try {
    await container.start();
  } catch (error) {
    if (statusOf(error) === 304) return;
    if (statusOf(error) === 404) {
      throw new SandboxError('gone', 'the sandbox does not exist any more', { cause: error });
    }
    throw error;
  }
}

/**
 * Starts one of our own programs, and waits until it reports that it is ready.
 * @throws SandboxError `failed` with its error message
 */
export async function startUntilReady(container: Docker.Container, what: string): Promise<void> {
  const stream = await container.attach({ stream: true, stdout: true, stderr: true });
  const timer = setTimeout(() => (stream as unknown as { destroy(): void }).destroy(), START_MS);
  try {
    await startContainer(container);
    let said = '';
    for await (const data of stream as unknown as AsyncIterable<Buffer>) {
      said = (said + data.toString('latin1')).slice(-2000);
      if (said.includes('ready\n')) return;
    }
    const lines = said.split('\n').filter((line) => /\w/.test(line));
    const complaint = lines.find((line) => /^\W*\w*Error\b/.test(line)) ?? lines.at(-1);
    throw new SandboxError('failed', `${what}: ${complaint ?? ENDED_WITHOUT_A_WORD}`);
  } finally {
    clearTimeout(timer);
    (stream as unknown as { destroy(): void }).destroy();
  }
}

/** The state of a container, `null` if there is none. */
export async function inspectContainer(
  container: Docker.Container,
): Promise<Docker.ContainerInspectInfo | null> {
  return container.inspect().catch(unless([404], null));
}

/** The environment variables that a container's image sets. */
export function environmentOf(info: Docker.ContainerInspectInfo): Record<string, string> {
  // Without any, the engine returns null.
  const lines = (info.Config.Env as string[] | null) ?? [];
  return Object.fromEntries(
    lines.map((line) => {
      const end = line.indexOf('=');
      return [line.slice(0, end), line.slice(end + 1)];
    }),
  );
}

/**
 * Stops a container and removes it with its anonymous volumes. Succeeds if there is none, or if another process is
 * removing it.
 */
export async function removeContainer(container: Docker.Container): Promise<void> {
  await container.remove({ force: true, v: true }).catch(unless([404, 409], undefined));
}

/**
 * Runs a container to its end and removes it.
 * @returns its exit code and the end of its output
 */
export async function runContainer(
  docker: Docker,
  spec: Docker.ContainerCreateOptions,
): Promise<{ exitCode: number; output: string }> {
  const container = await docker.createContainer({
    ...spec,
    HostConfig: { ...spec.HostConfig, LogConfig: { Type: 'json-file', Config: {} } },
  });
  try {
    return await waitFor(container);
  } finally {
    await removeContainer(container);
  }
}

/** Starts a container and waits for its end. */
export async function waitFor(
  container: Docker.Container,
): Promise<{ exitCode: number; output: string }> {
  await startContainer(container);
  const { StatusCode: exitCode } = (await container.wait()) as { StatusCode: number };
  const logs = await container.logs({ stdout: true, stderr: true, tail: 20 });
  return { exitCode, output: textOf(logs).trim() };
}
