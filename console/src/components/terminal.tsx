import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { OutputEvent, SessionLog } from '../session/session-log.js';
import { safeLink, visibleDirections } from '../lib/untrusted.js';
import { Confirm } from './basics.js';
import { applyStylesByProperty } from './styles-by-property.js';

applyStylesByProperty();

const SCROLLBACK = 100_000;
/** How much is handed to the terminal at a time; it parses this well within a frame. */
const BATCH_LENGTH = 256 * 1024;

const LIGHT = {
  background: '#fbfbfc',
  foreground: '#1c2024',
  cursor: '#fbfbfc',
  selectionBackground: '#c5d3fb',
  black: '#1c2024',
  red: '#c0272d',
  green: '#1a7f37',
  yellow: '#8a5d00',
  blue: '#2f56d3',
  magenta: '#8a3ab9',
  cyan: '#0b7285',
  white: '#60646c',
  brightBlack: '#60646c',
  brightRed: '#c0272d',
  brightGreen: '#1a7f37',
  brightYellow: '#8a5d00',
  brightBlue: '#2f56d3',
  brightMagenta: '#8a3ab9',
  brightCyan: '#0b7285',
  brightWhite: '#3a3f45',
};
const DARK = {
  background: '#101214',
  foreground: '#e3e5e8',
  cursor: '#101214',
  selectionBackground: '#34406b',
  brightBlack: '#8b9097',
};

/**
 * The output of a session as a terminal shows it. The terminal only reads: it sends nothing anywhere, sets no title, has
 * no clipboard, and opens links only after it has shown where they lead.
 */
export default function SessionTerminal({ log }: { log: SessionLog }) {
  const box = useRef<HTMLDivElement>(null);
  const [link, setLink] = useState<string>();
  const [behind, setBehind] = useState(false);
  const toEnd = useRef<() => void>(() => undefined);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const terminal = new Terminal({
      disableStdin: true,
      convertEol: true,
      scrollback: SCROLLBACK,
      fontSize: 13,
      fontFamily: 'ui-monospace, "Cascadia Code", "DejaVu Sans Mono", Menlo, monospace',
      cursorInactiveStyle: 'none',
      minimumContrastRatio: 4.5,
      theme: dark.matches ? DARK : LIGHT,
      linkHandler: { activate: (_event, address) => setLink(address) },
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(element);
    // Otherwise it would take all keys, for a program that it does not have: Tab could not leave it.
    terminal.attachCustomKeyEventHandler((event) => {
      if (event.type === 'keydown') scrollByKey(terminal, event);
      return false;
    });
    terminal.textarea?.setAttribute('aria-label', 'Output of the session');
    terminal.textarea?.setAttribute('readonly', '');
    const sized = new ResizeObserver(() => fit.fit());
    sized.observe(element);
    const onTheme = (): void => {
      terminal.options.theme = dark.matches ? DARK : LIGHT;
    };
    dark.addEventListener('change', onTheme);
    const write = writer(terminal, log);
    const unsubscribe = log.subscribe(write);
    const scrolled = terminal.onScroll(() => {
      const { viewportY, baseY } = terminal.buffer.active;
      setBehind(viewportY < baseY);
    });
    toEnd.current = () => {
      terminal.scrollToBottom();
      setBehind(false);
    };
    write();
    return () => {
      unsubscribe();
      scrolled.dispose();
      dark.removeEventListener('change', onTheme);
      sized.disconnect();
      terminal.dispose();
    };
  }, [log]);
  return (
    <div class="session-terminal">
      <div class="terminal-box" ref={box} />
      {behind && (
        <button type="button" class="primary jump" onClick={() => toEnd.current()}>
          To the end ↓
        </button>
      )}
      {link !== undefined && <LinkDialog address={link} onClose={() => setLink(undefined)} />}
    </div>
  );
}

/** Scrolls by the keys that scroll everything else. */
function scrollByKey(terminal: Terminal, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const scroll = SCROLLS[event.key];
  if (!scroll) return;
  event.preventDefault();
  scroll(terminal);
}

const SCROLLS: Readonly<Record<string, (terminal: Terminal) => void>> = {
  ArrowUp: (terminal) => terminal.scrollLines(-1),
  ArrowDown: (terminal) => terminal.scrollLines(1),
  PageUp: (terminal) => terminal.scrollPages(-1),
  PageDown: (terminal) => terminal.scrollPages(1),
  Home: (terminal) => terminal.scrollToTop(),
  End: (terminal) => terminal.scrollToBottom(),
};

/** @returns a function that writes what has come since its last call, at the terminal's own pace. */
function writer(terminal: Terminal, log: SessionLog): () => void {
  let next = 0;
  let turn = 0;
  let busy = false;
  const write = (): void => {
    if (busy) return;
    let text = '';
    while (next < log.events.length && text.length < BATCH_LENGTH) {
      const event = log.events[next];
      next += 1;
      if (event?.type !== 'output') continue;
      text += turnLine(event) + visibleDirections(event.data);
      turn = event.turn;
    }
    if (text === '') return;
    busy = true;
    terminal.write(text, () => {
      busy = false;
      write();
    });
  };
  /** Resets what the turn before may have left behind: colours, modes, the alternate screen. */
  const turnLine = (event: OutputEvent): string =>
    event.turn === turn || turn === 0
      ? ''
      : `\u001b[!p\u001b[?1049l\u001b[0m\r\n\u001b[2m── turn ${event.turn} ──\u001b[0m\r\n`;
  return write;
}

function LinkDialog({ address, onClose }: { address: string; onClose: () => void }) {
  const target = safeLink(address);
  const open = (): void => {
    if (target !== undefined) window.open(target, '_blank', 'noopener,noreferrer');
    onClose();
  };
  return (
    <Confirm
      title={target === undefined ? 'This link does not lead to a web page' : 'Open this link?'}
      action={target === undefined ? 'Close' : 'Open'}
      onConfirm={open}
      onCancel={onClose}
    >
      <p>The agent’s output says that this leads to:</p>
      <p>
        <code class="target">{target ?? address}</code>
      </p>
    </Confirm>
  );
}
