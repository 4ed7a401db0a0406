import type { Socket } from 'node:net';
import { RateLimit } from '../../common/rate-limit.js';
import { DialError, reset } from '../../gateway/egress/connections.js';
import type { RelayLimits } from './limits.js';

/** Connects for the clients of a sandbox, within its limits. */
export class Dials {
  private readonly rate: RateLimit;
  private underWay = 0;

  /**
   * @param closing ends all attempts
   * @param own called with each new connection
   */
  constructor(
    private readonly limits: RelayLimits,
    private readonly closing: AbortSignal,
    private readonly own: (upstream: Socket) => void,
  ) {
    this.rate = new RateLimit(limits.dialsPerSecond);
  }

  /**
   * Tries to connect until the client disconnects.
   * @throws DialError
   */
  async dialFor(client: Socket, dial: (signal: AbortSignal) => Promise<Socket>): Promise<Socket> {
    const limit =
      this.underWay >= this.limits.dials
        ? 'too many connections are being made'
        : this.rate.take()
          ? undefined
          : 'too many connections in a second';
    if (limit !== undefined) throw new DialError('refused', limit);
    const gone = new AbortController();
    const onClose = (): void => gone.abort();
    client.once('close', onClose);
    this.underWay += 1;
    try {
      const signal = AbortSignal.any([gone.signal, this.closing]);
      const upstream = await dial(signal);
      upstream.on('error', () => undefined);
      this.own(upstream);
      if (client.destroyed || this.closing.aborted) {
        reset(upstream);
        throw new DialError('failed', 'the client left');
      }
      return upstream;
    } finally {
      this.underWay -= 1;
      client.off('close', onClose);
    }
  }
}
