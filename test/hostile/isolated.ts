import type { Ending } from './attack.js';
import { attacksFor } from './attacks/index.js';
import {
  type HostileOptions,
  openStage,
  pause,
  startAttackers,
  tell,
  victimsOptions,
} from './hostile.js';
import { Part } from './part.js';
import type { Stage } from './stage.js';
import type { VictimsMeasured, VictimsVerified } from './victims.js';

/** What one attack did by itself. */
export interface Single extends Ending {
  what: string;
  /** The victim's lines meanwhile. */
  measured: VictimsMeasured;
  /** What happened to others: in words, or empty. */
  harm: string;
  memoryMiB: number;
}

/** A stage lasts for at most so long; then comes a new one. */
const STAGE_SECONDS = 1_500;
/** An attack that has not ended by then is left to itself. */
const ATTACK_LIMIT_MS = 75_000;
/** Lines that are so late have been held up by more than a busy machine. */
const LATE_MS = 5_000;
/** A victim that has heard nothing for so long after an attack has been silenced by it. */
const SILENCE_MS = 5_000;

interface Scene {
  stage: Stage;
  victims: Part;
  attackers: Part;
  endAt: number;
}

/** Runs one attack after the other, each alone; a service that does not survive one is replaced before the next. */
export async function runIsolated(options: HostileOptions): Promise<Single[]> {
  const attacks = attacksFor(options.driver, options.only);
  const results: Single[] = [];
  let scene: Scene | undefined;
  try {
    for (const attack of attacks) {
      if (options.signal?.aborted) break;
      if (scene && scene.endAt < Date.now() + ATTACK_LIMIT_MS + 30_000) {
        await close(scene);
        scene = undefined;
      }
      scene ??= await open(options);
      const { stage, victims, attackers } = scene;
      const from = Date.now();
      const ending = await runOne(attackers, attack.name, options.signal);
      await pause(2);
      const measured = await victims.call<VictimsMeasured>('measure', { from, to: Date.now() });
      const harm = await harmOf(scene, measured);
      const memoryMiB = Math.max(...Object.values(stage.memoryPeaks()));
      const single = { ...ending, what: attack.what, measured, harm, memoryMiB };
      results.push(single);
      const { p99, max } = measured.latency;
      options.log(
        `${tell(single)}\n          victim: p99 ${p99.toFixed(0)} ms, max ${max.toFixed(0)} ms; ${harm || 'no harm'}; ${memoryMiB} MiB`,
      );
      if (harm !== '' || ending.seconds * 1000 >= ATTACK_LIMIT_MS) {
        const ruined = scene;
        scene = undefined;
        await close(ruined);
      }
    }
  } finally {
    if (scene) await end(scene, options);
  }
  return results;
}

/** Runs an attack; one that does not end is left to itself. */
async function runOne(attackers: Part, attack: string, signal?: AbortSignal): Promise<Ending> {
  const ended = new AbortController();
  const giveUp = signal ? AbortSignal.any([signal, ended.signal]) : ended.signal;
  const none = { attack, ending: 'no end in time', held: false, seconds: ATTACK_LIMIT_MS / 1000 };
  try {
    return await Promise.race([
      attackers.call<Ending>('one', { name: attack }),
      pause(ATTACK_LIMIT_MS / 1000, giveUp).then(() => none),
    ]);
  } catch (error) {
    return { ...none, ending: String(error) };
  } finally {
    ended.abort();
  }
}

async function harmOf({ stage, victims }: Scene, measured: VictimsMeasured): Promise<string> {
  let illness = await stage.illness();
  // On a busy machine it may just be slow.
  for (let tries = 0; illness !== undefined && tries < 4; tries += 1) {
    await pause(2);
    illness = await stage.illness();
  }
  if (illness !== undefined) return illness.replaceAll(/\s+/g, ' ');
  let silence = 0;
  // What was only slow is back soon.
  for (let tries = 0; tries < 15; tries += 1) {
    silence = await victims.call<number>('silence');
    if (silence < SILENCE_MS) break;
    await pause(1);
  }
  if (silence >= SILENCE_MS)
    return `all streams are silent, ${Math.round(silence / 1000)} s so far`;
  const { failed, latency } = measured;
  return [
    ...(latency.max > LATE_MS ? [`lines came up to ${Math.round(latency.max / 1000)} s late`] : []),
    ...(failed.length > 0 ? [`${failed.length} new sessions failed: ${failed[0]}`] : []),
  ].join('; ');
}

async function open(options: HostileOptions): Promise<Scene> {
  const stage = await openStage(options, attacksFor(options.driver, options.only));
  const victims = new Part('victims', () => undefined, options.signal);
  const endAt = Date.now() + STAGE_SECONDS * 1000;
  try {
    await victims.begin(victimsOptions(stage, options, endAt));
  } catch (error) {
    await victims.end();
    await stage.close(true);
    throw error;
  }
  await pause(options.quiet, options.signal);
  const to = Date.now();
  const quiet = await victims.call<VictimsMeasured>('measure', {
    from: to - options.quiet * 1000,
    to,
  });
  options.log(`quiet: ${JSON.stringify(quiet.latency)}`);
  const attackers = await startAttackers(stage, options, () => undefined);
  return { stage, victims, attackers, endAt };
}

/** Verifies what the victims have got, and that everything can be cleared away. */
async function end(scene: Scene, { log }: HostileOptions): Promise<void> {
  try {
    const verified = await scene.victims.call<VictimsVerified>('finish', { cutShort: true });
    log(`victims: ${JSON.stringify(verified)}`);
    for (const what of await scene.stage.clear()) log(`left: ${what}`);
  } finally {
    for (const what of await close(scene)) log(`left: ${what}`);
  }
}

async function close({ stage, victims, attackers }: Scene): Promise<string[]> {
  await attackers.end();
  await victims.end();
  return stage.close(false);
}
