import { chown, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LocalSandboxDriver } from '../../../src/sandboxes/driver/local/local-sandbox-driver.js';
import type { LocalSandboxOptions } from '../../../src/sandboxes/driver/local/options.js';
import type { DriverUnderTest } from '../../contracts/sandbox-driver.contract.js';
import { DriverProcess } from './driver-in-process.js';

const MiB = 1024 * 1024;

/** Small limits, so that what runs into them does so at once. */
export const TEST_LIMITS = {
  processes: 100,
  memoryBytes: 1024 * MiB,
  diskBytes: 256 * MiB,
  tmpBytes: 16 * MiB,
  openFiles: 256,
};

export const isRoot = process.getuid?.() === 0;

/** Some ordinary user, who need not have an account. */
export const ORDINARY_USER = 1_990_000_001;

export async function newOptions(
  isolation: LocalSandboxOptions['isolation'],
  owner: number | null = null,
  limits: LocalSandboxOptions['limits'] = TEST_LIMITS,
): Promise<LocalSandboxOptions> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandboxes-'));
  if (owner !== null) await chown(stateDir, owner, owner);
  return { stateDir, isolation, limits, gateways: [] };
}

const drivers = new Set<LocalSandboxDriver>();

/** A driver in this process. It keeps a process of its own until {@link closeDrivers}. */
export function newDriver(options: LocalSandboxOptions): LocalSandboxDriver {
  const driver = new LocalSandboxDriver(options);
  drivers.add(driver);
  return driver;
}

export async function closeDrivers(): Promise<void> {
  const open = [...drivers];
  drivers.clear();
  await Promise.all(open.map((driver) => driver.close()));
}

/** The driver inside the test's own process. */
export async function installHere(
  isolation: LocalSandboxOptions['isolation'],
  limits?: LocalSandboxOptions['limits'],
): Promise<DriverUnderTest> {
  const options = await newOptions(isolation, null, limits);
  return {
    driver: newDriver(options),
    isolated: isolation === 'strict' || isRoot,
    again: () => Promise.resolve(newDriver(options)),
    dispose: async () => {
      await closeDrivers();
      await rm(options.stateDir, { recursive: true });
    },
  };
}

/** The driver in a process of an ordinary user, while the test runs as root. */
export async function installAsOrdinaryUser(
  isolation: LocalSandboxOptions['isolation'],
  limits?: LocalSandboxOptions['limits'],
): Promise<DriverUnderTest> {
  const options = await newOptions(isolation, ORDINARY_USER, limits);
  const processes: DriverProcess[] = [];
  const start = async () => {
    const own = await DriverProcess.start(options, ORDINARY_USER);
    processes.push(own);
    return own.driver;
  };
  const first = await start();
  let second: ReturnType<typeof start> | undefined;
  return {
    driver: first,
    isolated: isolation === 'strict',
    again: () => (second ??= start()),
    dispose: async () => {
      await Promise.all(processes.map((each) => each.stop()));
      await rm(options.stateDir, { recursive: true });
    },
  };
}
