import { describe, expect, it } from '@jest/globals';
import { enter } from './entry.js';

const GONE =
  'bwrap: Can\'t bind mount /oldroot/ on /newroot/: Unable to apply mount flags: remount "/newroot/x/merged": ';

/** How often it is tried when bubblewrap says these words, one after the other. */
async function triesOf(words: readonly string[]): Promise<{ tries: number; last: string }> {
  let tries = 0;
  const last = await enter(
    async () => words[Math.min(tries++, words.length - 1)] ?? '',
    (said) => said,
  );
  return { tries, last };
}

describe('entering a sandbox', () => {
  it('is tried again when a mount of the host went meanwhile', async () => {
    expect(
      await triesOf([`${GONE}No such file or directory`, `${GONE}Invalid argument`, '']),
    ).toEqual({ tries: 3, last: '' });
  });

  it('is given up after some tries, with the words of the last', async () => {
    expect(await triesOf([`${GONE}Invalid argument`])).toEqual({
      tries: 4,
      last: `${GONE}Invalid argument`,
    });
  });

  it('is not tried again for anything else', async () => {
    expect(await triesOf(['bwrap: No permissions to create new namespace', ''])).toMatchObject({
      tries: 1,
    });
    expect(await triesOf([`${GONE}Operation not permitted`, ''])).toMatchObject({ tries: 1 });
  });
});
