import { request } from 'node:http';

export interface Answer {
  status: number;
  text: string;
  /** Parsed; empty when it is no JSON. */
  body: Record<string, unknown>;
  headers: Record<string, string | string[] | undefined>;
}

/** One request on a connection of its own. @throws Error when there is no answer in time. */
export async function ask(
  url: string,
  options: {
    method?: string;
    token?: string;
    headers?: Record<string, string>;
    body?: object;
    timeoutMs?: number;
  } = {},
): Promise<Answer> {
  const { method = 'GET', token, headers, body, timeoutMs = 10_000 } = options;
  return new Promise((resolve, reject) => {
    const client = request(
      url,
      {
        method,
        agent: false,
        signal: AbortSignal.timeout(timeoutMs),
        headers: {
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...(body ? { 'content-type': 'application/json' } : {}),
          ...headers,
        },
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            text,
            body: parse(text),
            headers: response.headers,
          }),
        );
      },
    );
    client.on('error', reject);
    client.end(body && JSON.stringify(body));
  });
}

function parse(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}
