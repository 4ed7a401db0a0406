import {
  createServer,
  type IncomingMessage,
  request,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';

/** What is done to one stream on its way: after so many frames it is cut in the middle of the next, or ends; or is refused. */
export type Fault =
  { how: 'cut' | 'end'; afterFrames: number } | { how: 'refuse'; status: 502 | 503 };

export interface FlakyProxy {
  /** Without a trailing slash. */
  readonly url: string;
  /** `Last-Event-ID` of each request for a stream, in order; `since` where that was sent. */
  readonly cursors: string[];
  /** How many streams are open. */
  open(): number;
  stop(): Promise<void>;
}

/** Passes everything on; the first streams suffer the faults, one each, and later ones none. */
export async function startFlakyProxy(
  upstream: string,
  faults: readonly Fault[],
): Promise<FlakyProxy> {
  const cursors: string[] = [];
  let open = 0;
  const listener: RequestListener = (incoming, outgoing) => {
    const target = new URL(upstream + (incoming.url ?? ''));
    const isStream = target.pathname.endsWith('/stream');
    const fault = isStream ? faults[cursors.length] : undefined;
    if (isStream) {
      cursors.push(cursorOf(incoming, target));
      open += 1;
      outgoing.on('close', () => (open -= 1));
    }
    if (fault?.how === 'refuse') {
      outgoing.writeHead(fault.status, { 'content-type': 'text/plain' }).end('no upstream\n');
      return;
    }
    const { method, headers } = incoming;
    const passed = request(target, { method, headers, agent: false }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      outgoing.flushHeaders();
      if (fault) passFrames(answer, outgoing, fault);
      else answer.pipe(outgoing);
      answer.on('error', () => outgoing.destroy());
    });
    passed.on('error', () => outgoing.destroy());
    outgoing.on('close', () => passed.destroy());
    incoming.pipe(passed);
  };
  const server = createServer(listener);
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cursors,
    open: () => open,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function cursorOf({ headers }: IncomingMessage, { searchParams }: URL): string {
  return String(headers['last-event-id'] ?? searchParams.get('since') ?? '');
}

/** Bytes as Latin-1, so that a cut may fall into a character. */
function passFrames(
  answer: IncomingMessage,
  outgoing: ServerResponse,
  fault: { how: 'cut' | 'end'; afterFrames: number },
): void {
  let rest = '';
  let passed = 0;
  answer.setEncoding('latin1').on('data', (text: string) => {
    const frames = (rest + text).split(/(?<=\n\n)/);
    rest = frames.at(-1)?.endsWith('\n\n') ? '' : (frames.pop() ?? '');
    for (const frame of frames) {
      // How many comments there are depends on how long things take.
      if (frame.startsWith(':')) {
        outgoing.write(frame, 'latin1');
        continue;
      }
      if (passed === fault.afterFrames) {
        answer.destroy();
        if (fault.how === 'end') outgoing.end();
        else {
          outgoing.write(frame.slice(0, frame.length - 5), 'latin1', () => outgoing.destroy());
        }
        return;
      }
      outgoing.write(frame, 'latin1');
      passed += 1;
    }
  });
  answer.on('end', () => outgoing.end());
}
