import type { Attack, Driver } from '../attack.js';
import { CLIENT_ATTACKS } from './clients.js';
import { CONNECTION_ATTACKS } from './connections.js';
import { DISK_ATTACKS } from './disk.js';
import { ESCAPE_ATTACKS } from './escapes.js';
import { MEMORY_ATTACKS } from './memory.js';
import { NETWORK_ATTACKS } from './network.js';
import { OUTPUT_ATTACKS } from './output.js';
import { PROCESS_ATTACKS } from './processes.js';
import { REQUEST_ATTACKS } from './requests.js';
import { SESSION_ATTACKS } from './sessions.js';

export const ATTACKS: readonly Attack[] = [
  ...OUTPUT_ATTACKS,
  ...MEMORY_ATTACKS,
  ...PROCESS_ATTACKS,
  ...DISK_ATTACKS,
  ...ESCAPE_ATTACKS,
  ...NETWORK_ATTACKS,
  ...SESSION_ATTACKS,
  ...CLIENT_ATTACKS,
  ...REQUEST_ATTACKS,
  ...CONNECTION_ATTACKS,
];

/** @throws Error for a name that no attack has. */
export function attacksFor(driver: Driver, only?: readonly string[]): readonly Attack[] {
  for (const name of only ?? [])
    if (!ATTACKS.some((attack) => attack.name === name))
      throw new Error(`there is no attack "${name}"`);
  return ATTACKS.filter(
    ({ name, drivers }) =>
      (drivers?.includes(driver) ?? true) && (only === undefined || only.includes(name)),
  );
}
