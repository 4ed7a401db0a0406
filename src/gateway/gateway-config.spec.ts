import { expect, test } from '@jest/globals';
import { configFrom, configVariables } from './gateway-config.js';

/** What Linux allows for one variable, with its name. */
const MAX_BYTES = 128 * 1024 - 1;

test.each([10, 30_000, 500_000])('a configuration of %i characters fits in variables', (length) => {
  const config = {
    socket: '/socket',
    version: '1',
    grantKeys: ['🔑'.repeat(length)],
    trusted: [],
    idleMs: 1,
    user: null,
  };
  const variables = configVariables(config);
  for (const [name, value] of Object.entries(variables))
    expect(Buffer.byteLength(`${name}=${value}`)).toBeLessThan(MAX_BYTES);
  expect(configFrom(variables)).toBe(JSON.stringify(config));
});

test('without variables there is no configuration', () => {
  expect(configFrom({ PATH: '/bin' })).toBeUndefined();
});
