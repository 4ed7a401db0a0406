/**
 * A small MCP server for tests: over stdio as a program of its own, over http on the model endpoint. Its one tool `echo`
 * says what it was told and how long the secret is that it was started with, so that a test sees that it arrived.
 * This file is also run as it is, without its imports' neighbours: it imports nothing of ours.
 */
import { createInterface } from 'node:readline';

interface Message {
  id?: number | string;
  method: string;
  params: { protocolVersion?: string; arguments?: { text?: string } };
}

const TOOL = {
  name: 'echo',
  description: 'Says what it is told',
  inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
};

/** @returns the answer to a JSON-RPC message; none for a notification */
export function answerMcp({ id, method, params }: Message, secret: string | undefined): unknown {
  if (id === undefined) return undefined;
  const answer = (result: unknown) => ({ jsonrpc: '2.0', id, result });
  switch (method) {
    case 'initialize':
      return answer({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: 'test', version: '1.0.0' },
      });
    case 'tools/list':
      return answer({ tools: [TOOL] });
    case 'tools/call': {
      const length = secret === undefined ? 'no' : secret.length;
      const text = `echo ${params.arguments?.text} with a secret of ${length} characters`;
      return answer({ content: [{ type: 'text', text }] });
    }
    case 'ping':
      return answer({});
    default:
      return { jsonrpc: '2.0', id, error: { code: -32601, message: `no ${method} here` } };
  }
}

/** Serves standard input and output; the secret is in the environment. */
export function serveStdio(): void {
  createInterface({ input: process.stdin }).on('line', (line) => {
    const reply = answerMcp(JSON.parse(line) as Message, process.env.ECHO_SECRET);
    if (reply !== undefined) process.stdout.write(`${JSON.stringify(reply)}\n`);
  });
}
