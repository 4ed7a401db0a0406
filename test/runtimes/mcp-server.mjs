/**
 * A small MCP server for tests, over stdio as a program of its own, over http on the model endpoint. Its one tool `echo` says what it
 * was told together with the secret that it was started with, so that a test sees that the secret arrived.
 */
import { createInterface } from 'node:readline';

const TOOL = {
  name: 'echo',
  description: 'Says what it is told',
  inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
};

/** @returns {object | undefined} the answer to a JSON-RPC message; none for a notification */
export function answerMcp({ id, method, params }, secret) {
  if (id === undefined) return undefined;
  const answer = (result) => ({ jsonrpc: '2.0', id, result });
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
export function serveStdio() {
  createInterface({ input: process.stdin }).on('line', (line) => {
    const reply = answerMcp(JSON.parse(line), process.env.ECHO_SECRET);
    if (reply) process.stdout.write(`${JSON.stringify(reply)}\n`);
  });
}
