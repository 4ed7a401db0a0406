import { notFound, unauthorized } from '../common/errors.js';
import { Unreachable } from './command-line.js';
import { unreachable } from './service-client.js';

/** A source of a session's events. */
export interface StreamSource {
  /**
   * Connects and yields the events after the cursor until the connection ends.
   * @throws DomainError when reconnecting cannot help, Unreachable when it can.
   */
  open(cursor: number): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

/** Reads the stream from the service over HTTP. */
export function serviceSource(options: {
  url: string;
  token: string;
  sessionId: string;
}): StreamSource {
  const { url, token, sessionId } = options;
  return {
    async *open(cursor) {
      const response = await fetch(`${url}/sessions/${sessionId}/stream`, {
        headers: { authorization: `Bearer ${token}`, 'last-event-id': String(cursor) },
      }).catch((error: unknown) => {
        throw unreachable(url, error);
      });
      if (response.status === 401) throw unauthorized('The service rejects the token');
      if (response.status === 404) throw notFound('The owner of the token has no such session');
      if (response.status !== 200 || response.body === null) {
        throw new Unreachable(`${url} returned status ${response.status}`);
      }
      yield* response.body;
    },
    close: async () => undefined,
  };
}
