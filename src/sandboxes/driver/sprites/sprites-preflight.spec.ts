import { once } from 'node:events';
import { describe, expect, it } from '@jest/globals';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { SpritesPreflight } from './sprites-preflight.js';

describe('the preflight of Sprites', () => {
  it('says that the interface does not answer, instead of that it was aborted', async () => {
    const hangs = async (signal: AbortSignal): Promise<void> => {
      await once(signal, 'abort');
      throw new SandboxError('aborted', 'aborted');
    };
    const preflight = new SpritesPreflight({}, 'sprites.example', hangs, 20);
    await expect(preflight.run()).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'sprites.example does not answer within 0.02 seconds',
    });
  });

  it('asks once for several sessions, and again after a failure', async () => {
    let asked = 0;
    const fails = async (): Promise<void> => {
      asked += 1;
      throw new SandboxError('unavailable', 'not now');
    };
    const preflight = new SpritesPreflight({}, 'sprites.example', fails);
    const both = await Promise.allSettled([preflight.run(), preflight.run()]);
    expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(asked).toBe(1);
    await expect(preflight.run()).rejects.toThrow('not now');
    expect(asked).toBe(2);
  });

  it('names what is missing without asking', async () => {
    const preflight = new SpritesPreflight({ needsGateway: 'keys need it' }, 'x', () => {
      throw new Error('asked');
    });
    await expect(preflight.run()).rejects.toThrow('keys need it: set GATEWAY_URL');
  });
});
