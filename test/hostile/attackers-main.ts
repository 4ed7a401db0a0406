import { writeFileSync } from 'node:fs';
import { setPriority } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { type Attack, type Driver, type Ending, judge } from './attack.js';
import { ATTACKS } from './attacks/index.js';
import { Mallory } from './mallory.js';
import { servePart, tellHarness } from './part.js';

leaveProcessorTime();

export interface AttackersOptions {
  url: string;
  token: string;
  driver: Driver;
  pace: number;
  hoarderToken: string;
  /** Tokens to be revoked; told to the harness when that is to happen. */
  spareTokens: readonly string[];
}

let mallory: Mallory | undefined;
const stop = new AbortController();
const made = new Map<string, Promise<string>>();

function start({ url, token, hoarderToken, pace, spareTokens }: AttackersOptions): void {
  const spare = [...spareTokens];
  mallory = new Mallory(
    {
      url,
      token,
      pace,
      hoarderToken,
      signal: stop.signal,
      spareToken: async () => {
        const next = spare.pop();
        if (next === undefined) throw new Error('no spare token is left');
        return { token: next, revoke: async () => tellHarness({ revoke: next }) };
      },
    },
    made,
  );
}

async function run(attack: Attack): Promise<Ending> {
  if (!mallory) throw new Error('the attackers have not begun');
  const begun = performance.now();
  const ending = await attack.run(mallory).catch((error: unknown) => `failed: ${String(error)}`);
  return {
    attack: attack.name,
    ending,
    held: judge(attack, ending),
    seconds: (performance.now() - begun) / 1000,
  };
}

/** Runs the attacks over and over, some at a time, until {@link stop}. */
async function rotate({ names, lanes }: { names: string[]; lanes: number }): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      const ending = await run(attackOf(names[next++ % names.length]));
      if (!stop.signal.aborted) tellHarness({ ending });
      // Where everything is refused at once, this is not to become a load test.
      await delay(200);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

function attackOf(name: string | undefined): Attack {
  const attack = ATTACKS.find((candidate) => candidate.name === name);
  if (!attack) throw new Error(`there is no attack "${name}"`);
  return attack;
}

/** Clients of strangers would be elsewhere: here they get what processor time the others leave. */
function leaveProcessorTime(): void {
  setPriority(10);
  try {
    // Where the kernel groups processes by session, the priority above counts within this session only.
    writeFileSync('/proc/self/autogroup', '10');
  } catch {
    // A kernel without such groups.
  }
}

servePart({
  start,
  one: ({ name }: { name: string }) => run(attackOf(name)),
  rotate,
  stop: () => stop.abort(new Error('the run is over')),
});
