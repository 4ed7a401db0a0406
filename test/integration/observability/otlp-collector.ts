import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A span as it was received. Times are nanoseconds since 1970. */
export interface ReceivedSpan {
  traceId: string;
  spanId: string;
  /** Empty for a root. */
  parentSpanId: string;
  name: string;
  kind: number;
  start: bigint;
  end: bigint;
  attributes: Record<string, string>;
  failed: boolean;
  /** Of the process that sent it. */
  resource: Record<string, string>;
}

/** A collector for traces over OTLP/HTTP, in protobuf and in JSON. */
export interface Collector {
  readonly url: string;
  readonly spans: ReceivedSpan[];
  /** How often each kind of content was received. */
  readonly received: Map<string, number>;
  /** Headers of the last request. */
  headers: IncomingMessage['headers'];
  /** Everything that came, as text, to be searched. */
  text(): string;
  stop(): Promise<void>;
}

export async function startCollector(): Promise<Collector> {
  const bodies: Buffer[] = [];
  const collector: Collector = {
    url: '',
    spans: [],
    received: new Map(),
    headers: {},
    text: () => Buffer.concat(bodies).toString('latin1'),
    stop: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const type = request.headers['content-type'] ?? '';
      const body = Buffer.concat(chunks);
      if (request.method !== 'POST' || request.url !== '/v1/traces') {
        response.writeHead(404).end();
        return;
      }
      bodies.push(body);
      collector.headers = request.headers;
      collector.received.set(type, (collector.received.get(type) ?? 0) + 1);
      collector.spans.push(...(type === 'application/json' ? fromJson(body) : fromProtobuf(body)));
      response.writeHead(200, { 'content-type': type });
      response.end(type === 'application/json' ? '{}' : undefined);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return Object.assign(collector, { url: `http://127.0.0.1:${port}` });
}

interface JsonAttribute {
  key: string;
  value: Record<string, unknown>;
}
interface JsonSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes?: JsonAttribute[];
  status?: { code?: number };
}
interface JsonTraces {
  resourceSpans: {
    resource: { attributes: JsonAttribute[] };
    scopeSpans: { spans: JsonSpan[] }[];
  }[];
}

const ERROR = 2;

function fromJson(body: Buffer): ReceivedSpan[] {
  const attributesOf = (attributes: JsonAttribute[] = []) =>
    Object.fromEntries(attributes.map(({ key, value }) => [key, String(Object.values(value)[0])]));
  return (JSON.parse(body.toString()) as JsonTraces).resourceSpans.flatMap((group) =>
    group.scopeSpans
      .flatMap(({ spans }) => spans)
      .map((span) => ({
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId ?? '',
        name: span.name,
        kind: span.kind,
        start: BigInt(span.startTimeUnixNano),
        end: BigInt(span.endTimeUnixNano),
        attributes: attributesOf(span.attributes),
        failed: span.status?.code === ERROR,
        resource: attributesOf(group.resource.attributes),
      })),
  );
}

type Field = bigint | Buffer;

/** The fields of a protobuf message by number, each with all its values. */
function fieldsOf(message: Buffer): Map<number, Field[]> {
  const fields = new Map<number, Field[]>();
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message.readUInt8(at++);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const bytes = (length: number): Buffer => message.subarray(at, (at += length));
  while (at < message.length) {
    const tag = Number(varint());
    const read: Record<number, () => Field> = {
      0: varint,
      1: () => bytes(8).readBigUInt64LE(),
      2: () => bytes(Number(varint())),
      5: () => BigInt(bytes(4).readUInt32LE()),
    };
    const value = read[tag & 7]?.();
    if (value === undefined) throw new Error(`no protobuf: a field of type ${tag & 7}`);
    fields.set(tag >> 3, [...(fields.get(tag >> 3) ?? []), value]);
  }
  return fields;
}

/** By the numbers of opentelemetry/proto/trace/v1/trace.proto. */
function fromProtobuf(body: Buffer): ReceivedSpan[] {
  const parts = (message: Buffer, number: number): Buffer[] =>
    (fieldsOf(message).get(number) ?? []) as Buffer[];
  return parts(body, 1).flatMap((group) => {
    const resource = attributesIn(parts(group, 1)[0], 1);
    return parts(group, 2)
      .flatMap((scope) => parts(scope, 2))
      .map((span) => {
        const fields = fieldsOf(span);
        const hex = (number: number) =>
          (fields.get(number)?.[0] as Buffer | undefined)?.toString('hex') ?? '';
        const number = (field: number) => (fields.get(field)?.[0] ?? 0n) as bigint;
        const status = fields.get(15)?.[0] as Buffer | undefined;
        return {
          traceId: hex(1),
          spanId: hex(2),
          parentSpanId: hex(4),
          name: String(fields.get(5)?.[0]),
          kind: Number(number(6)),
          start: number(7),
          end: number(8),
          attributes: attributesIn(span, 9),
          failed: status !== undefined && fieldsOf(status).get(3)?.[0] === BigInt(ERROR),
          resource,
        };
      });
  });
}

function attributesIn(message: Buffer | undefined, number: number): Record<string, string> {
  const pairs = (message && fieldsOf(message).get(number)) ?? [];
  return Object.fromEntries(
    pairs.map((pair) => {
      const fields = fieldsOf(pair as Buffer);
      const value = [...fieldsOf(fields.get(2)?.[0] as Buffer).values()][0]?.[0];
      return [String(fields.get(1)?.[0]), String(value)];
    }),
  );
}
