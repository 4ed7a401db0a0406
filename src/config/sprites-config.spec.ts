import { describe, expect, it } from '@jest/globals';
import { loadConfig } from './app-config.js';

describe('the configuration of Sprites', () => {
  const env = { SANDBOX_DRIVER: 'sprites', SPRITES_TOKEN: 'secret' };

  it('has the address of the vendor by default', () => {
    expect(loadConfig(env).sandbox.sprites).toEqual({
      token: 'secret',
      baseUrl: 'https://api.sprites.dev',
      prefix: 'session',
    });
    const other = { ...env, SPRITES_BASE_URL: 'http://127.0.0.1:9/', SPRITES_PREFIX: 'team-a' };
    expect(loadConfig(other).sandbox.sprites).toMatchObject({
      baseUrl: 'http://127.0.0.1:9',
      prefix: 'team-a',
    });
  });

  it.each([
    [{ SANDBOX_DRIVER: 'sprites' }, 'SPRITES_TOKEN: must be set'],
    [{ ...env, SPRITES_PREFIX: 'Team' }, 'SPRITES_PREFIX: must be'],
    [{ ...env, SPRITES_PREFIX: 'a-name-that-is-too-long' }, 'SPRITES_PREFIX: must be'],
    [{ ...env, SPRITES_BASE_URL: 'sprites.dev' }, 'SPRITES_BASE_URL'],
    [{ ...env, WARM_POOL: '1' }, 'WARM_POOL: needs GATEWAY_URL'],
    [{ ...env, GATEWAY_URL: 'https://203.0.113.5:8443' }, 'GATEWAY_URL: must have a host name'],
    [{ ...env, GATEWAY_URL: 'https://[2001:db8::5]' }, 'GATEWAY_URL: must have a host name'],
    [{ ...env, GATEWAY_URL: 'http://localhost:8081' }, 'GATEWAY_URL: must have a host name'],
  ])('names what is wrong: %j', (wrong, message) => {
    expect(() => loadConfig(wrong)).toThrow(message);
  });
});
