import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { parse as parseYaml } from 'yaml';
import { SpritesStats } from '../../../src/sandboxes/driver/sprites/sprites-stats.js';
import { HttpClient } from '../../support/http-client.js';
import { testWith } from '../../support/requirements.js';
import type { Service } from '../../support/service.js';
import {
  eventually,
  leaveNothing,
  SessionsOf,
  startSessionService,
} from '../../support/sessions.js';
import { LIST_MODULES, modulesLoadedBy } from './loaded-modules.js';
import { type Family, labelsByName, parseScrape } from './prometheus-text.js';
import { parseQuery } from './promql.js';

const ALERTS = 'deploy/prometheus/alerts.yml';
/** Labels that Prometheus itself adds, and `up`, which is its own. */
const OF_PROMETHEUS = ['job', 'instance'];
const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-/;

interface Rule {
  alert: string;
  expr: string;
}
interface Panel {
  id: number;
  title: string;
  type: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: { expr: string; legendFormat: string }[];
}

let service: Service;
let scrape: string;
let families: Map<string, Family>;
/** What there was while a turn was running. */
let whileRunning: Map<string, Family>;

const metricsUrl = (): string => /Metrics on (http:[^\s"]+)/.exec(service.logs())?.[1] ?? '';
const read = (file: string): string => readFileSync(file, 'utf8');

/** The sum of a metric's samples whose labels have these values. */
function figure(name: string, labels: Record<string, string> = {}, from = families): number {
  const family = from.get(name) ?? from.get(name.replace(/_(count|sum|bucket)$/, ''));
  const wanted = Object.entries(labels);
  return (family?.samples ?? [])
    .filter((sample) => sample.name === name)
    .filter((sample) => wanted.every(([label, value]) => sample.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);
}

async function takeScrape(): Promise<void> {
  const answer = await fetch(metricsUrl());
  scrape = await answer.text();
  families = parseScrape(scrape);
}

beforeAll(async () => {
  service = await startSessionService({
    METRICS_PORT: '0',
    NODE_OPTIONS: LIST_MODULES,
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
    OTEL_SDK_DISABLED: 'true',
  });
  const sessions = new SessionsOf(service, service);
  const done = await sessions.completed('echo first; echo second >&2');
  await sessions.run('exit 3');
  const long = await sessions.create('echo up; sleep 600');
  await sessions.stream(long).until((stream) => stream.output() === 'up\n');
  // What clients choose must not become a label.
  await sessions.http.get(`/sessions/${done}`);
  await sessions.http.get(`/no/such/${done}`);
  await sessions.http.get('/sessions/not-an-id?x=y');
  await sessions.http.post('/agents', { name: 1 });
  await new HttpClient(service.url).get('/agents');
  await fetch(`${service.url}/agents`, { method: 'PROPFIND' });
  await takeScrape();
  whileRunning = families;
  await sessions.http.post(`/sessions/${long}/terminate`);
  await sessions.stream(long).end();
  // Requests are counted when they are over, which is a little after their answer.
  await eventually(async () => {
    await takeScrape();
    return figure('agent_sessions_stream_duration_seconds_count') === 4;
  }, 'all streams to be counted');
});

afterAll(async () => {
  await leaveNothing(service, [new SessionsOf(service, service)]);
  await service.stop();
});

describe('a scrape', () => {
  test('tells what has happened', () => {
    const requests = 'agent_sessions_http_request_duration_seconds_count';
    const turns = 'agent_sessions_turn_duration_seconds_count';
    expect(figure(requests, { method: 'POST', route: '/sessions', status: '202' })).toBe(3);
    expect(figure(requests, { route: '/agents', status: '422' })).toBe(1);
    expect(figure(requests, { route: '/agents', status: '401' })).toBe(1);
    expect(figure(requests, { route: '/sessions/:id', status: '404' })).toBe(1);
    expect(figure(requests, { route: 'unmatched', status: '404' })).toBe(1);
    expect(figure(requests, { route: '/sessions/:id/stream' })).toBe(0);
    expect(figure(turns, { provider: 'shell', state: 'completed' })).toBe(1);
    expect(figure(turns, { provider: 'shell', state: 'failed' })).toBe(1);
    expect(figure(turns, { provider: 'shell', state: 'terminated' })).toBe(1);
    expect(figure('agent_sessions_turn_first_output_seconds_count')).toBe(2);
    expect(figure('agent_sessions_turn_queue_seconds_count', { provider: 'shell' })).toBe(3);
    const stages = 'agent_sessions_stage_duration_seconds_count';
    expect(figure(stages, { stage: 'create_sprite', result: 'done' })).toBe(3);
    expect(figure(stages, { stage: 'runtime_start', result: 'done' })).toBe(3);
    expect(figure('agent_sessions_log_rows_total')).toBeGreaterThan(9);
    expect(figure('agent_sessions_stream_events_total')).toBeGreaterThan(16);
    expect(figure('agent_sessions_stream_bytes_total')).toBeGreaterThan(1000);
    expect(figure('agent_sessions_database_available')).toBe(1);
    expect(figure('agent_sessions_database_connections')).toBeGreaterThan(0);
    expect(figure('agent_sessions_lease_takeovers_total')).toBe(0);
    const running = { state: 'running', provider: 'shell' };
    expect(figure('agent_sessions_turns', running, whileRunning)).toBe(1);
    expect(figure('agent_sessions_running_turns', {}, whileRunning)).toBe(1);
    expect(figure('agent_sessions_open_streams', {}, whileRunning)).toBe(1);
    expect(figure('agent_sessions_turns')).toBe(0);
  });

  test('has words from small sets as label values, never what a client chose', () => {
    const values = [...families.values()].flatMap(({ samples }) =>
      samples.flatMap(({ labels }) => Object.values(labels)),
    );
    expect(values).toContain('/sessions/:id');
    expect(
      values.filter((value) => UUID.test(value) || /not-an-id|such|PROPFIND/.test(value)),
    ).toEqual([]);
  });

  testWith(['promtool'], 'passes promtool', () => {
    const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: scrape,
      encoding: 'utf8',
    });
    // It also has an opinion on names, which those of prom-client's own metrics do not meet.
    const complaints = stderr
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('nodejs_'));
    expect([status === 0 || status === 3, complaints]).toEqual([true, []]);
  });

  test('has the metrics of the documentation, with their types and labels, and no others', () => {
    const rows = [
      ...read('docs/observability.md').matchAll(
        /^\| `([a-z_0-9]+)` +\| (\w+) +\|([^|]*)\|([^|]*)\|/gm,
      ),
    ].filter(([, name = '']) => /^(agent_sessions|process|nodejs)_/.test(name));
    const documented = rows.map(([, name, type, , labels = '']) => ({
      name,
      type,
      labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label).sort(),
    }));
    const labelsOf = (name: string): string[] =>
      [
        ...new Set(
          [families, whileRunning]
            .flatMap((from) => from.get(name)?.samples ?? [])
            .flatMap(({ labels }) => Object.keys(labels)),
        ),
      ]
        .filter((label) => label !== 'le')
        .sort();
    const exposed = [...families.values()].map(({ name, type, samples }) => ({
      name,
      type,
      // Node may have had nothing to tell yet, and then there is no label to see.
      labels:
        samples.length === 0 && name.startsWith('nodejs_')
          ? (documented.find((one) => one.name === name)?.labels ?? [])
          : labelsOf(name),
    }));
    const byName = (a: { name?: string }, b: { name?: string }) =>
      (a.name ?? '').localeCompare(b.name ?? '');
    expect(exposed.sort(byName)).toEqual(documented.sort(byName));
  });
});

test('where traces are off, nothing of OpenTelemetry is loaded but what prom-client brings', () => {
  expect(modulesLoadedBy(service.logs())).toEqual(['api']);
});

test('a stream whose client does not read counts as slow while it does not', async () => {
  const sessions = new SessionsOf(service, service);
  const id = await sessions.create('yes "$(seq -s " " 300)" | head -c 24000000');
  const url = new URL(service.url);
  const socket = connect(Number(url.port), url.hostname);
  try {
    socket.write(
      `GET /sessions/${id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${service.token}\r\n\r\n`,
    );
    const slow = async (count: number) => {
      await takeScrape();
      return figure('agent_sessions_slow_streams') === count;
    };
    await eventually(() => slow(1), 'the stream to be slow');
    expect(figure('agent_sessions_stream_pauses_total')).toBeGreaterThan(0);
    socket.resume();
    await eventually(() => slow(0), 'the stream to go on');
  } finally {
    socket.destroy();
  }
});

/** What a service with SANDBOX_DRIVER=sprites adds, which this one is not. */
function familiesOfSprites(): Family[] {
  const stats = new SpritesStats();
  stats.noteAnswer('create', 201);
  return stats.export().map(({ name, help, type, values }) => ({
    name,
    help,
    type,
    samples: values.map(({ labels, value }) => ({
      name,
      labels: Object.fromEntries(
        Object.entries(labels).map(([key, label]) => [key, String(label)]),
      ),
      value,
    })),
  }));
}

describe('what is made of the metrics', () => {
  /** What a query names that does not exist. */
  function unknownIn(expression: string): string[] {
    const scraped = [...families.values(), ...whileRunning.values(), ...familiesOfSprites()];
    const names = labelsByName(scraped).set('up', new Set());
    const { selectors, groupedBy } = parseQuery(expression);
    expect(selectors.length).toBeGreaterThan(0);
    const known = (name: string): Set<string> =>
      new Set([...(names.get(name) ?? []), ...OF_PROMETHEUS]);
    const all = new Set(selectors.flatMap(({ name }) => [...known(name)]));
    return [
      ...selectors.filter(({ name }) => !names.has(name)).map(({ name }) => name),
      ...selectors.flatMap(({ name, labels }) =>
        labels.filter((label) => !known(name).has(label)).map((label) => `${name}{${label}}`),
      ),
      ...groupedBy.filter((label) => !all.has(label)).map((label) => `by (${label})`),
    ];
  }

  test('the check finds names and labels that do not exist', () => {
    expect(
      unknownIn(
        'sum by (x) (rate(agent_sessions_http_request_duration_seconds_count{code="1"}[5m]))',
      ),
    ).toEqual(['agent_sessions_http_request_duration_seconds_count{code}', 'by (x)']);
    expect(unknownIn('agent_sessions_http_request_duration_seconds > 1')).toEqual([
      'agent_sessions_http_request_duration_seconds',
    ]);
    expect(() => parseQuery('sum(rate(')).toThrow('no PromQL');
  });

  test('alert rules ask for what exists', () => {
    const { groups } = parseYaml(read(ALERTS)) as { groups: { rules: Rule[] }[] };
    const rules = groups.flatMap((group) => group.rules);
    expect(rules.length).toBeGreaterThan(10);
    for (const { alert, expr } of rules) expect([alert, unknownIn(expr)]).toEqual([alert, []]);
  });

  testWith(['promtool'], 'alert rules pass promtool, and fire when they should', () => {
    for (const args of [
      ['check', 'rules', ALERTS],
      ['test', 'rules', 'deploy/prometheus/alerts.test.yml'],
    ]) {
      const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8' });
      expect([args, status, status === 0 ? '' : stdout + stderr]).toEqual([args, 0, '']);
    }
  });

  test('the dashboard asks for what exists, and shows labels that its queries give', () => {
    const { panels } = JSON.parse(read('deploy/grafana/dashboard.json')) as { panels: Panel[] };
    const shown = panels.flatMap(({ title, targets = [] }) =>
      targets.map(({ expr, legendFormat }) => ({ title, expr: plain(expr), legendFormat })),
    );
    expect(shown.length).toBeGreaterThan(20);
    for (const { title, expr, legendFormat } of shown) {
      expect([title, unknownIn(expr)]).toEqual([title, []]);
      const { groupedBy } = parseQuery(expr);
      const legend = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label);
      expect([title, legend.filter((label) => !groupedBy.includes(label ?? ''))]).toEqual([
        title,
        [],
      ]);
    }
  });

  test('the dashboard shows every metric of the service, and its panels do not overlap', () => {
    const { panels } = JSON.parse(read('deploy/grafana/dashboard.json')) as { panels: Panel[] };
    const asked = new Set(
      panels.flatMap(({ targets = [] }) =>
        targets.flatMap(({ expr }) =>
          parseQuery(plain(expr)).selectors.map(({ name }) =>
            name.replace(/_(bucket|count|sum)$/, ''),
          ),
        ),
      ),
    );
    const own = [...families.keys(), ...familiesOfSprites().map(({ name }) => name)].filter(
      (name) => name.startsWith('agent_sessions_'),
    );
    expect(own.filter((name) => !asked.has(name))).toEqual([]);
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)},${y + Math.floor(cell / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  });

  /** Grafana's variables as it fills them in. */
  function plain(expression: string): string {
    return expression.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.*');
  }
});
