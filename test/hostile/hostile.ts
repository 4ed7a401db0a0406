import { setTimeout as delay } from 'node:timers/promises';
import { Random } from '../faults/random.js';
import { type Attack, type Driver, type Ending } from './attack.js';
import { attacksFor } from './attacks/index.js';
import type { AttackersOptions } from './attackers-main.js';
import { Part } from './part.js';
import { Stage } from './stage.js';
import type { VictimsMeasured, VictimsOptions, VictimsVerified } from './victims.js';

export interface HostileOptions {
  driver: Driver;
  split: boolean;
  seed: number;
  /** Before the attackers come. Seconds. */
  quiet: number;
  /** With them. Seconds. */
  attacked: number;
  /** How many attacks have to end: a slow machine gets up to {@link EXTENSION} seconds more for them. Default: any number. */
  atLeast?: number;
  /** How many attacks run at a time. */
  lanes: number;
  sessions: number;
  /** All durations of attacks are multiplied by it. */
  pace: number;
  /** How soon a new session of the other user has to print. Seconds. */
  startLimit: number;
  /** Names of attacks; default: all of the driver. */
  only?: readonly string[];
  log: (line: string) => void;
  /** Ends the run early. */
  signal?: AbortSignal;
  keepLogs?: boolean;
}

export interface HostileReport {
  before: VictimsMeasured;
  under: VictimsMeasured;
  verified: VictimsVerified;
  endings: Ending[];
  left: string[];
  /** Why the service was not well in the end; `undefined` when it was. */
  illness: string | undefined;
  memoryMiB: Record<string, number>;
  seconds: number;
  /** Where the logs are, if they were kept. */
  folder?: string;
}

const NEW_SESSION_EVERY_MS = 3_000;

/** Seconds between the end of the attacks and the end of the victims' sessions. */
const AFTERMATH = 5;
/** Seconds. */
const EXTENSION = 180;

/** One user attacks, another one works: measures and verifies what the second one gets to notice. */
export async function runHostile(options: HostileOptions): Promise<HostileReport> {
  const begun = performance.now();
  const { driver, log, signal } = options;
  const attacks = attacksFor(driver, options.only);
  const stage = await openStage(options, attacks);
  let report: HostileReport | undefined;
  let victims: Part | undefined;
  let attackers: Part | undefined;
  try {
    const endings: Ending[] = [];
    victims = new Part('victims', () => undefined, signal);
    // Starting takes a while, more so on an engine.
    const extension = options.atLeast === undefined ? 0 : EXTENSION;
    const printing = options.quiet + options.attacked + extension + AFTERMATH + 30;
    const endAt = Date.now() + printing * 1000;
    await victims.begin(victimsOptions(stage, options, endAt));
    log(`${options.sessions} sessions print 20 lines a second each`);
    const quietFrom = Date.now();
    await pause(options.quiet, signal);
    const quietTo = Date.now();
    attackers = await startAttackers(stage, options, (ending) => {
      endings.push(ending);
      log(tell(ending));
    });
    const names = shuffled(attacks, options.seed).map(({ name }) => name);
    const rotating = attackers.call('rotate', { names, lanes: options.lanes });
    rotating.catch(() => undefined);
    const stopAt = endAt - AFTERMATH * 1000;
    await pause(Math.min(options.attacked, (stopAt - Date.now()) / 1000), signal);
    const lacksEndings = () =>
      endings.length < (options.atLeast ?? 0) && Date.now() < stopAt && signal?.aborted !== true;
    while (lacksEndings()) await pause(1, signal);
    const attackedTo = Date.now();
    await attackers.call('stop');
    await victims.call('calm');
    await pause(AFTERMATH, signal);
    const verified = await victims.call<VictimsVerified>('finish', {
      cutShort: signal?.aborted ?? false,
    });
    await rotating;
    const illness = await stage.illness();
    const memoryMiB = stage.memoryPeaks();
    log('clearing up');
    const left =
      illness === undefined ? await stage.clear() : [`not looked for: ${illness.slice(0, 80)}`];
    report = {
      before: await victims.call('measure', { from: quietFrom, to: quietTo }),
      under: await victims.call('measure', { from: quietTo, to: attackedTo }),
      verified,
      endings,
      left,
      illness,
      memoryMiB,
      seconds: (performance.now() - begun) / 1000,
    };
  } finally {
    await attackers?.end();
    await victims?.end();
    const keep = options.keepLogs === true && (report === undefined || problems(report).length > 0);
    const remains = await stage.close(keep);
    report?.left.push(...remains);
    if (keep && report) report.folder = stage.cluster.folder;
    if (keep) log(`logs of the service: ${stage.cluster.folder}/logs`);
  }
  return report;
}

export function openStage(options: HostileOptions, attacks: readonly Attack[]): Promise<Stage> {
  const { driver, split } = options;
  const software = attacks.some((attack) => attack.software === true);
  return Stage.open({ driver, split, software });
}

export function victimsOptions(
  stage: Stage,
  { sessions, startLimit }: HostileOptions,
  endAt: number,
): VictimsOptions {
  return {
    url: stage.url,
    token: stage.cluster.token,
    sessions,
    endAt,
    newSessionEveryMs: NEW_SESSION_EVERY_MS,
    newSessionLimitMs: startLimit * 1000,
  };
}

export async function startAttackers(
  stage: Stage,
  { driver, pace }: HostileOptions,
  onEnding: (ending: Ending) => void,
): Promise<Part> {
  const attackers = new Part('attackers', (event) => {
    const { ending, revoke } = event as { ending?: Ending; revoke?: string };
    if (ending) onEnding(ending);
    if (revoke !== undefined) void stage.cluster.revokeToken(revoke);
  });
  const options: AttackersOptions = { url: stage.url, driver, pace, ...stage.mallory };
  await attackers.call('start', options);
  return attackers;
}

/** Everything that is wrong, whatever the machine; how fast it was is for {@link slowness}. */
export function problems(report: HostileReport): string[] {
  const { verified, under, before, endings, left, illness } = report;
  const { lost, repeated, reordered } = verified;
  return [
    ...(lost + repeated + reordered > 0
      ? [`the victim's lines: ${lost} lost, ${repeated} repeated, ${reordered} reordered`]
      : []),
    ...verified.problems,
    ...tallied([...before.failed, ...under.failed]).map(
      ([why, count]) => `${count} new sessions of the victim failed: ${why}`,
    ),
    ...endings
      .filter(({ held }) => !held)
      .map(({ attack, ending }) => `attack ${attack} ended with: ${ending}`),
    ...left.map((what) => `left: ${what}`),
    ...(illness === undefined ? [] : [`the service: ${illness}`]),
  ];
}

/** How much later the victim's lines arrive under attack, at the 99th percentile. */
export function slowdown({ before, under }: HostileReport): number {
  return under.latency.p99 / Math.max(before.latency.p99, 1);
}

export function tell({ attack, ending, held, seconds }: Ending): string {
  return `${held ? 'held    ' : 'NOT HELD'}  ${attack.padEnd(24)} ${seconds.toFixed(0).padStart(3)} s  ${ending.slice(0, 240)}`;
}

export async function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  await delay(Math.max(0, seconds * 1000), undefined, { signal }).catch(() => undefined);
}

function tallied(texts: readonly string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts];
}

function shuffled<T>(items: readonly T[], seed: number): T[] {
  const random = new Random(seed);
  return items
    .map((item) => ({ item, key: random.next() }))
    .sort((a, b) => a.key - b.key)
    .map(({ item }) => item);
}
