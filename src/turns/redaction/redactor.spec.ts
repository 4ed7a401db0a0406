import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import { Redactor, replaceRegions } from './redactor.js';

/** A small generator of its own, so that a failure can be repeated. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function textOf(next: (below: number) => number, length: number, alphabet: string): string {
  return Array.from({ length }, () => alphabet[next(alphabet.length)]).join('');
}

/** What is replaced for a secret, in other words than the code's. */
function formsOf(secret: string): string[] {
  if (secret.length < 8) return [];
  const inShell = secret.split("'").join(String.raw`'\''`);
  const lines = secret.includes('\n') ? [secret, inShell].flatMap((s) => s.split(/\r?\n/)) : [];
  const json = JSON.stringify(secret);
  return [
    secret,
    json.slice(1, json.length - 1),
    encodeURIComponent(secret),
    inShell,
    ...lines.filter((l) => l.trim().length >= 16),
  ];
}

/** Marks every byte of every occurrence, overlapping ones as one region. */
function regionsOf(bytes: Buffer, forms: readonly string[]): { start: number; end: number }[] {
  const found = forms.flatMap((form) => {
    const pattern = Buffer.from(form);
    return Array.from({ length: bytes.length }, (_, start) => ({
      start,
      end: start + pattern.length,
    })).filter(({ start, end }) => bytes.subarray(start, end).equals(pattern));
  });
  const merged: { start: number; end: number }[] = [];
  for (const { start, end } of found.toSorted((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last && start < last.end) last.end = Math.max(last.end, end);
    else merged.push({ start, end });
  }
  return merged;
}

function naive(text: string, forms: readonly string[]): string {
  let clean = '';
  let position = 0;
  const bytes = Buffer.from(text);
  for (const { start, end } of regionsOf(bytes, forms)) {
    clean += `${bytes.toString('utf8', position, start)}[redacted]`;
    position = end;
  }
  return clean + bytes.toString('utf8', position);
}

/** Secrets of a few letters, which overlap themselves and each other, and a text with some of them in it. */
function example(seed: number) {
  const next = random(seed);
  const alphabet =
    ['ab', 'ab"\\', "ab'\n", 'a\nb', 'aé€\u{1F600}'.slice(0, 3), 'abcdef\t'][next(6)] ?? 'ab';
  const secrets = Array.from({ length: 1 + next(6) }, () => {
    const length = next(4) === 0 ? 30 + next(40) : 6 + next(8);
    return textOf(next, length, alphabet);
  });
  const forms = secrets.flatMap(formsOf);
  const pieces = Array.from({ length: 40 }, () => {
    const form = forms[next(forms.length)] ?? '';
    return [
      form,
      form.slice(0, next(form.length)),
      form.slice(next(form.length)),
      textOf(next, next(12), alphabet),
      'xyz ',
    ][next(5)];
  });
  return { next, secrets, forms, text: pieces.join('') };
}

describe('Redactor', () => {
  it('leaves short values alone and knows the forms and the long lines of a secret', () => {
    expect(Redactor.of(['short']).redact('short')).toBe('short');
    expect(Redactor.of(['with"quote']).redact('{"k":"with\\"quote"}')).toBe('{"k":"[redacted]"}');
    expect(Redactor.of(['to/ken+é=1']).redact('//u:to%2Fken%2B%C3%A9%3D1@h')).toBe(
      '//u:[redacted]@h',
    );
    expect(Redactor.of(["it's secret"]).redact(`export K='it'\\''s secret'`)).toBe(
      "export K='[redacted]'",
    );
    expect(Redactor.of(['half \ud83d of it']).redact('half \ud83d of it')).toBe('[redacted]');
    const key = '-----BEGIN-----\nthis-is-a-long-line\nshort';
    expect(Redactor.of([key]).redact('x this-is-a-long-line short')).toBe('x [redacted] short');
  });

  it('finds what a naive search finds, whatever the secrets are', () => {
    for (let seed = 1; seed <= 500; seed += 1) {
      const { secrets, forms, text } = example(seed);
      expect([seed, Redactor.of(secrets).redact(text)]).toEqual([seed, naive(text, forms)]);
    }
  });

  it('finds the same in pieces, and holds back no byte more than it has to', () => {
    for (let seed = 1; seed <= 80; seed += 1) {
      const { next, secrets, forms, text } = example(seed);
      const bytes = Buffer.from(text);
      const scanner = Redactor.of(secrets).scanner();
      const patterns = forms.map((form) => Buffer.from(form));
      const parts: Buffer[] = [];
      let given = 0;
      for (let read = 0; read < bytes.length;) {
        const end = Math.min(bytes.length, read + 1 + next(9));
        scanner.scan(bytes.subarray(read, end));
        read = end;
        const settled = scanner.settled();
        parts.push(replaceRegions(bytes.subarray(given, settled), given, scanner.release(settled)));
        given = settled;
        // The first suffix that is the beginning of a secret, or the region that it is in.
        let open = 0;
        while (
          open < read &&
          !patterns.some(
            (pattern) =>
              pattern.length > read - open &&
              pattern.subarray(0, read - open).equals(bytes.subarray(open, read)),
          )
        ) {
          open += 1;
        }
        const around = regionsOf(bytes.subarray(0, read), forms).find(
          (region) => region.start < open && open < region.end,
        );
        expect([seed, read, settled]).toEqual([seed, read, around?.start ?? open]);
      }
      const rest = scanner.release(bytes.length);
      parts.push(replaceRegions(bytes.subarray(given), given, rest));
      expect([seed, Buffer.concat(parts).toString()]).toEqual([seed, naive(text, forms)]);
    }
  });

  it('is shared by turns that run at once with the same secrets', async () => {
    const [one, two] = [
      await Redactor.prepare(['secret-one', 'secret-two']),
      await Redactor.prepare(['secret-two', 'secret-one']),
    ];
    expect(one).toBe(two);
    expect(one.redact('secret-one')).toBe('[redacted]');
    expect(await Redactor.prepare(['secret-one'])).not.toBe(one);
  });

  it('lets others run while it is built', async () => {
    const secrets = Array.from({ length: 32 }, (_, i) => `${i}`.padEnd(65_536, 'xy'));
    let ticks = 0;
    let building = true;
    const tick = (): void => {
      ticks += 1;
      if (building) setImmediate(tick);
    };
    setImmediate(tick);
    await Redactor.prepare(secrets);
    building = false;
    expect(ticks).toBeGreaterThan(16);
  });

  // Searching for each secret in each chunk takes minutes. It yields, so that the limit of the test can end it.
  it.each([
    ['of one letter', 'a'.repeat(65_536), (i: number) => 'a'.repeat(32_768 + i)],
    ['with one beginning', `${'a'.repeat(32_768)}c`, (i: number) => `${'a'.repeat(32_768)}b${i}`],
    ['of many lines', `${'a'.repeat(60)}\n`, (i: number) => `${'a'.repeat(60)}${i}\n`.repeat(500)],
    ['that are suffixes of each other', 'ab'.repeat(200), (i: number) => 'ba'.repeat(i + 100)],
  ])(
    'takes linear time for secrets %s',
    async (_, unit, secretOf) => {
      const redactor = await Redactor.prepare(Array.from({ length: 100 }, (_x, i) => secretOf(i)));
      const text = Buffer.from(unit.repeat(Math.ceil((2 << 20) / unit.length)));
      for (const size of [1, 65_536]) {
        const scanner = redactor.scanner();
        const length = size === 1 ? 1 << 19 : text.length;
        for (let at = 0; at < length; at += size) {
          scanner.scan(text.subarray(at, at + size));
          scanner.release(scanner.settled());
          if (at % 4096 === 0) await nextTurn();
        }
        // Only what may belong to a secret that has not ended is held back.
        expect(scanner.settled()).toBeGreaterThan(length - 131_072);
      }
    },
    60_000,
  );
});
