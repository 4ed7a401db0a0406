/** One sample of a scrape. */
interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** A metric with its samples; those of a histogram have the suffixes `_bucket`, `_sum` and `_count`. */
export interface Family {
  name: string;
  type: 'counter' | 'gauge' | 'histogram';
  help: string;
  samples: Sample[];
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/y;
const SUFFIXES = ['_bucket', '_sum', '_count'];

/**
 * Reads Prometheus's text format, version 0.0.4, by its own rules and not by the library that wrote it.
 * @throws Error on the first line that breaks one
 */
export function parseScrape(text: string): Map<string, Family> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end');
  const families = new Map<string, Family>();
  const seen = new Set<string>();
  let current: Family | undefined;
  let help: { name: string; text: string } | undefined;
  for (const line of text.split('\n')) {
    const fail = (why: string) => new Error(`${why}: ${line}`);
    if (line === '') continue;
    const [, kind, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? [];
    if (kind === 'HELP') {
      help = { name, text: rest };
    } else if (kind === 'TYPE') {
      if (!NAME.test(name) || help?.name !== name) throw fail('a TYPE without its HELP');
      if (families.has(name)) throw fail('a metric comes twice');
      if (rest !== 'counter' && rest !== 'gauge' && rest !== 'histogram') throw fail('what type?');
      current = { name, type: rest, help: help.text, samples: [] };
      families.set(name, current);
    } else {
      const sample = readSample(line);
      if (!sample || current === undefined || !belongs(current, sample)) {
        throw fail('a sample that belongs to no metric');
      }
      const key = `${sample.name} ${JSON.stringify(Object.entries(sample.labels).sort(([a], [b]) => a.localeCompare(b)))}`;
      if (seen.has(key)) throw fail('a sample comes twice');
      seen.add(key);
      if (current.type === 'counter' && !(sample.value >= 0)) throw fail('a counter below 0');
      current.samples.push(sample);
    }
  }
  for (const family of families.values()) if (family.type === 'histogram') checkHistogram(family);
  return families;
}

function readSample(line: string): Sample | undefined {
  const [, name, inner = '', number = ''] = SAMPLE.exec(line) ?? [];
  // As Go reads numbers: whatever the case.
  const isNaN = number.toLowerCase() === 'nan';
  const value = number === '+Inf' ? Infinity : Number(number);
  if (name === undefined || (Number.isNaN(value) && !isNaN)) return undefined;
  const labels: Record<string, string> = {};
  let at = 0;
  while (at < inner.length) {
    LABEL.lastIndex = at;
    const [whole, label, text] = LABEL.exec(inner) ?? [];
    if (whole === undefined || label === undefined || text === undefined || label in labels) {
      return undefined;
    }
    labels[label] = text.replaceAll('\\n', '\n').replaceAll(/\\(["\\])/g, '$1');
    at += whole.length;
  }
  return { name, labels, value };
}

function belongs(family: Family, { name, labels }: Sample): boolean {
  if (family.type !== 'histogram') return name === family.name;
  const suffix = SUFFIXES.find((end) => name === `${family.name}${end}`);
  return suffix !== undefined && (suffix === '_bucket') === 'le' in labels;
}

/** Buckets rise, and the last one is the count. */
function checkHistogram(family: Family): void {
  const series = new Map<string, { buckets: [number, number][]; count?: number; sum?: number }>();
  for (const { name, labels, value } of family.samples) {
    const { le, ...others } = labels;
    const key = JSON.stringify(others);
    const one = series.get(key) ?? { buckets: [] };
    series.set(key, one);
    if (le !== undefined) one.buckets.push([le === '+Inf' ? Infinity : Number(le), value]);
    else if (name.endsWith('_count')) one.count = value;
    else one.sum = value;
  }
  for (const [key, { buckets, count, sum }] of series) {
    const rises = buckets.every(([bound, value], index) => {
      const [lastBound, lastValue] = buckets[index - 1] ?? [-Infinity, 0];
      return bound > lastBound && value >= lastValue;
    });
    const [lastBound, lastValue] = buckets.at(-1) ?? [];
    if (!rises || lastBound !== Infinity || lastValue !== count || sum === undefined) {
      throw new Error(`the histogram ${family.name} ${key} does not add up`);
    }
  }
}

/** Label names by the name of what can be asked for: a histogram can be by three names. */
export function labelsByName(families: Iterable<Family>): Map<string, Set<string>> {
  const names = new Map<string, Set<string>>();
  for (const family of families) {
    const asked =
      family.type === 'histogram' ? SUFFIXES.map((end) => family.name + end) : [family.name];
    for (const name of asked) names.set(name, names.get(name) ?? new Set());
    for (const { name, labels } of family.samples) {
      for (const label of Object.keys(labels)) names.get(name)?.add(label);
    }
  }
  return names;
}
