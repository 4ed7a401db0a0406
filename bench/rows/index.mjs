import * as live from './live.mjs';
import { fanoutRow } from './fanout.mjs';
import * as replay from './replay.mjs';
import * as memory from './memory.mjs';
import * as idle from './idle.mjs';
import * as paused from './paused.mjs';
import * as ingest from './ingest.mjs';
import * as api from './api.mjs';
import * as start from './start.mjs';
import * as environment from './environment.mjs';
import { burstRow } from './burst.mjs';
import * as running from './running.mjs';
import * as turns from './turns.mjs';
import * as lists from './lists.mjs';
import * as purge from './purge.mjs';
import * as files from './files.mjs';
import * as gateway from './gateway.mjs';
import * as growth from './growth.mjs';
import * as consoleRow from './console.mjs';

/** The rows by name, in the order of the table. */
export const ROWS = {
  live,
  fanout: fanoutRow({
    title: 'One session, 200 readers, saturated',
    channels: 1,
    readers: 200,
    references: ['nchan', 'bare-node', 'sandbox-agent', 'opencode'],
    goals: [
      { label: 'fan-out to 200 readers / nchan', metric: 'rate', against: 'nchan', atLeast: 4 },
      {
        label: 'fan-out to 200 readers / sandbox-agent',
        metric: 'rate',
        against: 'sandbox-agent',
        atLeast: 8,
      },
    ],
  }),
  streams: fanoutRow({
    title: '200 sessions with a reader each, saturated; the service commits before it delivers',
    channels: 200,
    readers: 1,
    references: ['nchan', 'bare-node'],
    goals: [
      { label: '200 streams at once / nchan', metric: 'rate', against: 'nchan', atLeast: 0.7 },
    ],
  }),
  replay,
  memory,
  idle,
  paused,
  ingest,
  api,
  start,
  environment,
  burst50: burstRow({ count: 50, goalMs: 1_500 }),
  burst100: burstRow({ count: 100, goalMs: 3_000 }),
  running,
  turns,
  lists,
  purge,
  gateway,
  files,
  growth,
  console: consoleRow,
};
