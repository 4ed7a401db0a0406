import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Logger } from '@nestjs/common';
import { SandboxError } from '../sandboxes/driver/sandbox-driver.js';
import type { TurnPlan } from './turn-plan.js';
import { launchTurn } from './turn-launch.js';
import type { TurnWork } from './turn-work.js';

beforeEach(() => {
  jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
});
afterEach(() => {
  jest.restoreAllMocks();
});

function workWith(
  launch: () => Promise<void>,
  deadline: number,
  wake: () => void = () => undefined,
): TurnWork {
  return {
    parts: {
      clock: { now: () => 1_000, monotonic: () => 0 },
      grants: { issue: () => ({ env: {}, runtimeTurn: {} }) },
      usage: { wake },
    },
    turn: { id: 'turn', turn_number: 1 },
    journal: { progress: { stages: { runtime_start: { startedAt: 0 } } } },
    sandbox: { launch },
    signal: new AbortController().signal,
    deadline,
  } as unknown as TurnWork;
}
const PLAN = {
  runtime: { launch: () => ({ command: ['x'], env: {}, stdin: '' }) },
} as unknown as TurnPlan;

test.each(['unavailable', 'aborted'] as const)(
  'a launch of which nothing is known (%s) is tried again within the turn’s time',
  async (kind) => {
    const launch = jest.fn<() => Promise<void>>();
    launch.mockRejectedValueOnce(new SandboxError(kind, 'no answer')).mockResolvedValueOnce();
    await launchTurn(workWith(launch, 2_000), PLAN);
    expect(launch).toHaveBeenCalledTimes(2);
    launch.mockRejectedValueOnce(new SandboxError(kind, 'no answer'));
    await expect(launchTurn(workWith(launch, 500), PLAN)).rejects.toThrow('no answer');
  },
);

test('a launch that has failed is not', async () => {
  const launch = jest.fn<() => Promise<void>>();
  launch.mockRejectedValue(new SandboxError('failed', 'no such program'));
  await expect(launchTurn(workWith(launch, 2_000), PLAN)).rejects.toThrow('no such program');
  expect(launch).toHaveBeenCalledTimes(1);
});

test('a launch makes usage be read from the gateway that may have started with it', async () => {
  const wake = jest.fn();
  const launch = jest.fn<() => Promise<void>>();
  launch.mockRejectedValueOnce(new SandboxError('failed', 'no such program'));
  await expect(launchTurn(workWith(launch, 2_000, wake), PLAN)).rejects.toThrow('no such program');
  expect(wake).not.toHaveBeenCalled();
  launch.mockResolvedValueOnce();
  await launchTurn(workWith(launch, 2_000, wake), PLAN);
  expect(wake).toHaveBeenCalledTimes(1);
});
