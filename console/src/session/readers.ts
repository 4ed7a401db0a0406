import { rough } from '../lib/format.js';
import {
  type Edit,
  endTool,
  isObject,
  type Json,
  type LineReader,
  objectAt,
  outputOf,
  startTool,
  textOf,
  type Transcript,
} from './entries.js';

/** The edits that the input of a tool for files describes, by the parameter names of the known programs. */
export function editsOf(input: unknown): Edit[] | undefined {
  if (!isObject(input)) return undefined;
  const path = textOf(input['file_path'] ?? input['filePath'] ?? input['path']);
  if (path === '') return undefined;
  const pairs = Array.isArray(input['edits']) ? input['edits'].filter(isObject) : [input];
  const edits: Edit[] = [];
  for (const pair of pairs) {
    const before = pair['old_string'] ?? pair['oldString'];
    const after = pair['new_string'] ?? pair['newString'];
    if (typeof before === 'string' && typeof after === 'string')
      edits.push({ path, before, after });
  }
  if (edits.length === 0 && typeof input['content'] === 'string') {
    edits.push({ path, before: '', after: input['content'] });
  }
  return edits.length > 0 ? edits : undefined;
}

const add = (transcript: Transcript, tone: 'info' | 'error', text: string, details?: unknown) =>
  transcript.add({ kind: 'note', tone, text, ...(details !== undefined && { details }) });

/** Claude Code's stream-json. */
const claude: LineReader = {
  read(line, transcript) {
    const { content } = objectAt(line, 'message');
    switch (line['type']) {
      case 'system':
        if (line['subtype'] === 'init') {
          add(transcript, 'info', `Claude Code started with ${textOf(line['model'])}`, line);
        } else add(transcript, 'info', textOf(line['subtype']).replaceAll('_', ' '), line);
        return true;
      case 'assistant':
        if (!Array.isArray(content)) return false;
        return content.every((part) => isObject(part) && claudePart(part, transcript));
      case 'user':
        if (!Array.isArray(content)) return false;
        return content.every((part) => isObject(part) && claudeResult(part, transcript));
      case 'result': {
        const failed = line['is_error'] === true || line['subtype'] !== 'success';
        const turns = line['num_turns'];
        if (failed) {
          const reason = textOf(line['result']) || textOf(line['subtype']);
          add(transcript, 'error', reason, line);
        } else add(transcript, 'info', `Finished after ${String(turns)} steps`, line);
        return true;
      }
      default:
        return false;
    }
  },
};

function claudePart(part: Json, transcript: Transcript): boolean {
  switch (part['type']) {
    case 'text':
      transcript.add({ kind: 'text', text: textOf(part['text']) });
      return true;
    case 'thinking':
      transcript.add({ kind: 'thinking', text: textOf(part['thinking']) });
      return true;
    case 'redacted_thinking':
      transcript.add({ kind: 'thinking', text: 'The provider keeps these thoughts to itself.' });
      return true;
    case 'tool_use':
    case 'server_tool_use':
      startTool(transcript, {
        id: textOf(part['id']),
        name: textOf(part['name']),
        input: part['input'],
        edits: editsOf(part['input']),
      });
      return true;
    default:
      return false;
  }
}

function claudeResult(part: Json, transcript: Transcript): boolean {
  if (part['type'] === 'text') {
    transcript.add({ kind: 'note', tone: 'info', text: textOf(part['text']) });
    return true;
  }
  if (part['type'] !== 'tool_result') return false;
  return endTool(transcript, textOf(part['tool_use_id']), {
    failed: part['is_error'] === true,
    output: outputOf(part['content']),
  });
}

/** `codex exec --json`. */
const codex: LineReader = {
  read(line, transcript) {
    const item = objectAt(line, 'item');
    switch (line['type']) {
      case 'thread.started':
        add(transcript, 'info', 'Codex started', line);
        return true;
      case 'turn.started':
        return true;
      case 'turn.completed':
        add(transcript, 'info', 'Finished', line);
        return true;
      case 'turn.failed':
        add(transcript, 'error', textOf(objectAt(line, 'error')['message']), line);
        return true;
      case 'error':
        add(transcript, 'error', textOf(line['message']), line);
        return true;
      case 'item.started':
      case 'item.updated':
        return codexItem(item, false, transcript);
      case 'item.completed':
        return codexItem(item, true, transcript);
      default:
        return false;
    }
  },
};

function codexItem(item: Json, completed: boolean, transcript: Transcript): boolean {
  const id = textOf(item['id']);
  switch (item['type']) {
    case 'agent_message':
      if (completed) transcript.add({ kind: 'text', text: textOf(item['text']) });
      return true;
    case 'reasoning':
      if (completed) transcript.add({ kind: 'thinking', text: textOf(item['text']) });
      return true;
    case 'error':
      add(transcript, 'error', textOf(item['message']), item);
      return true;
    case 'command_execution':
      return codexTool(item, completed, transcript, {
        id,
        name: 'shell',
        input: { command: item['command'] },
        output: outputOf(item['aggregated_output']),
      });
    case 'file_change':
      return codexTool(item, completed, transcript, {
        id,
        name: 'edit files',
        input: { changes: item['changes'], path: changedPaths(item['changes']) },
        output: '',
      });
    case 'mcp_tool_call': {
      const error = objectAt(item, 'error')['message'];
      const result = objectAt(item, 'result');
      return codexTool(item, completed, transcript, {
        id,
        name: `${textOf(item['server'])}.${textOf(item['tool'])}`,
        input: item['arguments'],
        output: outputOf(error ?? result['content']),
      });
    }
    case 'web_search':
      return codexTool(item, completed, transcript, {
        id,
        name: 'web search',
        input: { query: item['query'] },
        output: '',
      });
    default:
      return false;
  }
}

function codexTool(
  item: Json,
  completed: boolean,
  transcript: Transcript,
  { output, ...call }: { id: string; name: string; input: unknown; output: string },
): boolean {
  startTool(transcript, call);
  if (completed) endTool(transcript, call.id, { failed: item['status'] === 'failed', output });
  return true;
}

const changedPaths = (changes: unknown): string =>
  Array.isArray(changes)
    ? changes.map((change) => textOf(objectAt({ change }, 'change')['path'])).join(', ')
    : '';

/** Gemini CLI's stream-json. */
const gemini: LineReader = {
  read(line, transcript) {
    switch (line['type']) {
      case 'init':
        add(transcript, 'info', `Gemini CLI started with ${textOf(line['model'])}`, line);
        return true;
      case 'message':
        if (line['role'] === 'user') return true;
        return geminiText(line, transcript);
      case 'tool_use':
        startTool(transcript, {
          id: textOf(line['tool_id']),
          name: textOf(line['tool_name']),
          input: line['parameters'],
          edits: editsOf(line['parameters']),
        });
        return true;
      case 'tool_result':
        return endTool(transcript, textOf(line['tool_id']), {
          failed: line['status'] === 'error',
          output: outputOf(line['output'] ?? objectAt(line, 'error')['message']),
        });
      case 'error':
        add(transcript, line['severity'] === 'warning' ? 'info' : 'error', textOf(line['message']));
        return true;
      case 'result': {
        const failed = line['status'] !== 'success';
        const reason = textOf(objectAt(line, 'error')['message']);
        add(transcript, failed ? 'error' : 'info', failed ? reason : 'Finished', line);
        return true;
      }
      default:
        return false;
    }
  },
};

/** Gemini sends a message in pieces. The pieces of one message follow each other. */
function geminiText(line: Json, transcript: Transcript): boolean {
  const text = textOf(line['content']);
  const last = line['delta'] === true ? transcript.last() : undefined;
  if (last?.kind === 'text') {
    last.text += text;
    transcript.changed(last);
  } else transcript.add({ kind: 'text', text });
  return true;
}

/** `opencode run --format json`. */
const opencode: LineReader = {
  read(line, transcript) {
    const part = objectAt(line, 'part');
    switch (line['type']) {
      case 'step_start':
        return true;
      case 'text':
        transcript.add({ kind: 'text', text: textOf(part['text']) });
        return true;
      case 'reasoning':
        transcript.add({ kind: 'thinking', text: textOf(part['text']) });
        return true;
      case 'tool_use': {
        const state = objectAt(part, 'state');
        const id = textOf(part['callID']) || textOf(part['id']);
        const call = startTool(transcript, {
          id,
          name: textOf(part['tool']),
          input: state['input'],
          edits: editsOf(state['input']),
        });
        if (state['status'] === 'completed' || state['status'] === 'error') {
          const output = outputOf(state['output'] ?? state['error']);
          endTool(transcript, id, { failed: state['status'] === 'error', output });
          const { start, end } = objectAt(state, 'time');
          if (typeof start === 'number' && typeof end === 'number') call.durationMs = end - start;
        }
        return true;
      }
      case 'step_finish': {
        const { input, output } = objectAt(part, 'tokens');
        if (textOf(part['reason']) === 'stop') {
          const tokens = Number(input ?? 0) + Number(output ?? 0);
          add(transcript, 'info', `Finished (${rough(tokens)} tokens in the last step)`, line);
        }
        return true;
      }
      case 'error': {
        const error = objectAt(line, 'error');
        const message = textOf(objectAt(error, 'data')['message']) || textOf(error['name']);
        add(transcript, 'error', message || 'OpenCode failed', line);
        return true;
      }
      default:
        return false;
    }
  },
};

/** By the agent's provider. `shell` has none: its output is a terminal's. */
export const READERS: Readonly<Record<string, LineReader>> = {
  anthropic: claude,
  openai: codex,
  google: gemini,
  opencode,
};
