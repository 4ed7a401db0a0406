import { describe, expect, it } from '@jest/globals';
import { WarmDemand } from './warm-demand.js';
import type { WarmRecipe } from './warm-recipe.js';

const MINUTE = 60_000;

const recipe = (key: string, environment?: { id: string; version: number }): WarmRecipe => ({
  key,
  networkMode: 'unrestricted',
  writableRoot: false,
  setup: environment
    ? { ...environment, clones: false, network: { mode: 'unrestricted', allowedHosts: [] } }
    : null,
  programs: [],
});

/** The demand after sessions with these recipes, in order. */
function demandOf(...keys: string[]): WarmDemand {
  const demand = new WarmDemand();
  for (const key of keys) demand.note(recipe(key), 0);
  return demand;
}

const wanted = (demand: WarmDemand, room: number, now = 0): string =>
  demand
    .wanted(room, now)
    .map(({ key }) => key)
    .join(' ');

describe('what to keep ready', () => {
  it.each([
    ['nothing that nobody environments for', '', 3, ''],
    ['all of the only kind', 'a', 3, 'a a a'],
    ['one of each, the last used first', 'a b c', 3, 'c b a'],
    ['what there is room for', 'a b c', 2, 'c b'],
    ['a second of the last used', 'a b', 3, 'b a b'],
    ['by the last time that each was used', 'a b a', 2, 'a b'],
  ])('is %s', (_name, sessions, room, keys) => {
    expect(wanted(demandOf(...sessions.split(' ').filter(Boolean)), room)).toBe(keys);
  });

  it('ends half an hour after the last session', () => {
    const demand = demandOf('a', 'b');
    demand.note(recipe('a'), 20 * MINUTE);
    expect(wanted(demand, 2, 31 * MINUTE)).toBe('a a');
    expect(wanted(demand, 2, 51 * MINUTE)).toBe('');
  });

  it('contains no outdated version of an environment', () => {
    const demand = new WarmDemand();
    demand.note(recipe('old', { id: 'changed', version: 1 }), 0);
    demand.note(recipe('archived', { id: 'archived', version: 1 }), 0);
    demand.note(recipe('plain'), 0);
    demand.note(recipe('new', { id: 'changed', version: 2 }), 0);
    const environments = demand.environments();
    expect(environments.toSorted()).toEqual(['archived', 'changed']);
    demand.note(recipe('late', { id: 'late', version: 1 }), 0);
    demand.forgetOutdated(environments, new Map([['changed', 2]]));
    expect(wanted(demand, 3)).toBe('late new plain');
  });

  it('remembers a limited number of recipes', () => {
    const demand = new WarmDemand();
    for (let i = 0; i < 1000; i += 1) demand.note(recipe(`${i}`), 0);
    expect(new Set(wanted(demand, 1000).split(' ')).size).toBe(256);
  });
});

describe('a recipe that failed', () => {
  it('is tried again later, and later each time, until it succeeds', () => {
    const demand = demandOf('a');
    const a = recipe('a');
    expect(demand.isDue(a, 0)).toBe(true);
    expect(demand.failed(a, 0)).toBe(1);
    expect([29_999, 30_000].map((now) => demand.isDue(a, now))).toEqual([false, true]);
    expect(demand.failed(a, 0)).toBe(2);
    expect([59_999, 60_000].map((now) => demand.isDue(a, now))).toEqual([false, true]);
    for (let i = 0; i < 20; i += 1) demand.failed(a, 0);
    expect(demand.isDue(a, 30 * MINUTE)).toBe(true);
    demand.succeeded(a);
    expect(demand.failed(a, 0)).toBe(1);
  });

  it('is not forgotten by the next session', () => {
    const demand = demandOf('a');
    demand.failed(recipe('a'), 0);
    demand.note(recipe('a'), 1);
    expect(demand.isDue(recipe('a'), 2)).toBe(false);
  });
});
