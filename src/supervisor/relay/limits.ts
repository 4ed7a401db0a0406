import type { Rate } from '../../common/rate-limit.js';

/** The limits of one sandbox's relay. They protect the host's resolver, sockets and CPUs, which all sandboxes share. */
export interface RelayLimits {
  /** Concurrent connections, with two descriptors each. */
  connections: number;
  /** Connections that are being established, including name resolution. */
  dials: number;
  dialsPerSecond: Rate;
  /** Concurrent lookups of names. */
  lookups: number;
  lookupsPerSecond: Rate;
  /** DNS queries, including those of known names. */
  questionsPerSecond: Rate;
}

/** Well above what the installation of a thousand packages needs. */
export const RELAY_LIMITS: RelayLimits = {
  connections: 256,
  dials: 64,
  dialsPerSecond: { each: 100, burst: 600 },
  lookups: 32,
  lookupsPerSecond: { each: 50, burst: 300 },
  questionsPerSecond: { each: 1000, burst: 4000 },
};
