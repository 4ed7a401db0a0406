import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import { HOME, type SandboxLogger, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import type { RunScriptOptions, ScriptResult } from '../sandbox-driver.js';
import { AGENT, FOLDER, TMP } from './options.js';
import type { SpriteInstaller } from './sprite-installer.js';
import type { SpriteRequests } from './sprite-requests.js';
import { AS_ROOT } from './sprite-runtime.js';
import type { Sprites } from './sprites.js';

const CLEAN_UP_MS = 60_000;
/** How long a restored sprite may take to start again. */
const RESTORE_MS = 120_000;
const RESTORE_POLL_MS = 200;
/** By which our checkpoints are found among those of the vendor and of the sprite's own programs. */
const COMMENT = 'agent-session: before a setup script';

/** Is not empty while a setup script has begun and not succeeded. */
const BEGUN = `${FOLDER}/setup-begun`;
/** The keys of the reusable scripts that have succeeded. */
const DONE = `${FOLDER}/setups-done`;
const IS_BEGUN = 81;
const IS_DONE = 82;
/** The shell, or sudo, does not work any more. */
const NO_COMMAND: readonly number[] = [126, 127];
/** Nothing but the shell itself: an interrupted script may have left no other program of the image usable. */
const LOOK = `[ -s ${BEGUN} ] && exit ${IS_BEGUN}
[ -e ${DONE} ] && while read -r key; do [ "$key" != "$1" ] || exit ${IS_DONE}; done < ${DONE}
exit 0`;
const BEGIN = `echo "$1" > ${BEGUN}`;
const END = `echo "$1" >> ${DONE} && : > ${BEGUN}`;

/**
 * Setup scripts that run as root of a machine. Each begins at a checkpoint. If it fails or is interrupted, for example
 * because its worker died, the next setup script first restores that checkpoint, so that it finds no half-made system.
 *
 * The vendor restores a checkpoint only in the sprite that it was taken from, so nothing is shared between sprites.
 */
export class SpriteSetups {
  constructor(
    private readonly sprites: Sprites,
    private readonly requests: SpriteRequests,
    private readonly installer: SpriteInstaller,
    private readonly logger: SandboxLogger | undefined,
  ) {}

  /**
   * @param options.limited the sprite's network was limited when it was created
   * @param run runs the script
   */
  async run(
    options: Omit<RunScriptOptions, 'as'> & { limited: boolean },
    run: () => Promise<ScriptResult>,
  ): Promise<ScriptResult> {
    const { sandboxId, signal, reusable = false, limited } = options;
    const key = keyOf(options);
    let found = await this.look(sandboxId, key, signal);
    if (found === IS_BEGUN) found = await this.restore(sandboxId, key, signal);
    if (limited) await this.requirePolicy(sandboxId, signal);
    if (reusable && found === IS_DONE) return { exitCode: 0, outputTail: '' };
    if (await this.save(sandboxId, signal)) await this.note(sandboxId, BEGIN, key, signal);
    const result = await this.cleanedUp(sandboxId, run);
    if (result.exitCode === 0) await this.note(sandboxId, END, key, signal);
    return result;
  }

  /** Ends what the script left behind, which runs as root, and gives its files to the agent; also after a failure. */
  private async cleanedUp(
    sandboxId: string,
    run: () => Promise<ScriptResult>,
  ): Promise<ScriptResult> {
    try {
      return await run();
    } finally {
      const limit = AbortSignal.timeout(CLEAN_UP_MS);
      await this.sprites.restart(sandboxId, limit);
      const given = ['give', String(AGENT), HOME, WORKSPACE, TMP];
      await this.sprites.runProgram(sandboxId, 'supervisor/own-files.js', given, limit);
    }
  }

  private async look(sandboxId: string, key: string, signal: AbortSignal): Promise<number> {
    const exitCode = await this.shell(sandboxId, LOOK, key, signal);
    if ([0, IS_BEGUN, IS_DONE].includes(exitCode)) return exitCode;
    // Without a shell or sudo, a script can neither have been noted as done.
    if (NO_COMMAND.includes(exitCode)) return IS_BEGUN;
    throw new SandboxError('failed', `the setups of a sprite could not be read (${exitCode})`);
  }

  private async note(
    sandboxId: string,
    what: string,
    key: string,
    signal: AbortSignal,
  ): Promise<void> {
    const exitCode = await this.shell(sandboxId, what, key, signal);
    if (exitCode === 0) return;
    throw new SandboxError('failed', `the setup of a sprite could not be noted (${exitCode})`);
  }

  private async shell(
    sandboxId: string,
    script: string,
    key: string,
    signal: AbortSignal,
  ): Promise<number> {
    const command = [...AS_ROOT, '/bin/sh', '-c', script, 'sh', key] as const;
    return (await this.requests.run(sandboxId, command, undefined, signal)).exitCode;
  }

  /** @returns whether there is a checkpoint now. Without one, an interrupted script is repeated over what it left. */
  private async save(sandboxId: string, signal: AbortSignal): Promise<boolean> {
    const json = { comment: COMMENT };
    try {
      const path = ['checkpoint'];
      const answer = await this.requests.send(sandboxId, { method: 'POST', path, json, signal });
      requireCompletion(answer);
      return true;
    } catch (error) {
      requireNotAborted(signal);
      if (error instanceof SandboxError && error.kind === 'gone') throw error;
      this.logger?.warn(`No checkpoint of sandbox ${sandboxId}: ${(error as Error).message}`);
      return false;
    }
  }

  /** @returns what {@link look} finds then */
  private async restore(sandboxId: string, key: string, signal: AbortSignal): Promise<number> {
    const id = await this.latest(sandboxId, signal);
    if (id === undefined) {
      this.logger?.warn(`The checkpoint of sandbox ${sandboxId} before its setup is gone`);
      return 0;
    }
    const policy = await this.policy(sandboxId, signal);
    const path = ['checkpoints', id, 'restore'];
    await this.requests.send(sandboxId, { method: 'POST', path, signal });
    // The answer comes before the machine has stopped. The note is not part of the checkpoint.
    const until = Date.now() + RESTORE_MS;
    let found: number;
    for (;;) {
      found = await this.shell(sandboxId, LOOK, key, signal);
      // Any other exit code comes from the machine before its restart.
      if (found === 0 || found === IS_DONE) break;
      if (Date.now() > until) throw new SandboxError('unavailable', `${id} is not restored yet`);
      await delay(RESTORE_POLL_MS, undefined, { signal }).catch(() => requireNotAborted(signal));
    }
    // The vendor does not document whether a restore keeps policies and services.
    if (policy !== undefined) {
      const how = { method: 'POST', path: ['policy', 'network'], json: policy, signal } as const;
      await this.requests.send(sandboxId, how);
    }
    await this.installer.install(sandboxId, signal);
    this.logger?.debug(`Sandbox ${sandboxId} was restored to ${id}, before its setup`);
    return found;
  }

  /** The id of the latest checkpoint of ours. */
  private async latest(sandboxId: string, signal: AbortSignal): Promise<string | undefined> {
    const path = ['checkpoints'];
    const answer = await this.requests.send(sandboxId, { method: 'GET', path, signal });
    const listed = parsed(answer);
    if (!Array.isArray(listed)) throw unreadable();
    const ours = (listed as { id?: unknown; comment?: unknown; create_time?: unknown }[])
      .filter(({ id, comment }) => typeof id === 'string' && comment === COMMENT)
      .map(({ id, create_time: created }) => ({ id: String(id), at: Date.parse(String(created)) }));
    return ours.toSorted((a, b) => b.at - a.at)[0]?.id;
  }

  /**
   * A restore that was interrupted may have removed the network policy, and without one the network is open.
   * @throws SandboxError `failed`, because nothing here knows what the policy was
   */
  private async requirePolicy(sandboxId: string, signal: AbortSignal): Promise<void> {
    if ((await this.policy(sandboxId, signal)) !== undefined) return;
    throw new SandboxError('failed', 'the sprite lost its network policy when it was restored');
  }

  /** The current network policy; `undefined` if it has no rules. An empty list opens the network, so it is never sent. */
  private async policy(sandboxId: string, signal: AbortSignal): Promise<object | undefined> {
    const path = ['policy', 'network'];
    const answer = await this.requests.send(sandboxId, { method: 'GET', path, signal });
    const { rules } = (parsed(answer) ?? {}) as { rules?: unknown };
    return Array.isArray(rules) && rules.length > 0 ? { rules } : undefined;
  }
}

/** What a reusable script depends on. */
function keyOf({ script, env = {}, shared }: Omit<RunScriptOptions, 'as'>): string {
  const variables = Object.entries(env).toSorted(([a], [b]) => (a < b ? -1 : 1));
  const what = JSON.stringify([script, variables, shared ?? null]);
  return createHash('sha256').update(what).digest('hex').slice(0, 16);
}

/** @throws Error unless the progress that the vendor reports ends with a success */
function requireCompletion(answer: Buffer): void {
  const last = answer.toString('utf8').trim().split('\n').at(-1) ?? '';
  const said = parsed(Buffer.from(last)) as { type?: unknown; error?: unknown } | null | undefined;
  if (said?.type === 'complete') return;
  if (said?.type !== 'error') throw unreadable();
  const reason = typeof said.error === 'string' ? said.error.slice(0, 200).toWellFormed() : '';
  throw new SandboxError('failed', `Sprites could not make a checkpoint: ${reason}`);
}

function parsed(answer: Buffer): unknown {
  try {
    return JSON.parse(answer.toString('utf8'));
  } catch {
    return undefined;
  }
}

function unreadable(): SandboxError {
  return new SandboxError('unavailable', 'Sprites does not say what became of a checkpoint');
}
