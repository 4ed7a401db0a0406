import Anser from 'anser';
import { useMemo, useState } from 'preact/hooks';
import { bytes } from '../lib/format.js';
import { plain, visible, withoutEscapes } from '../lib/untrusted.js';
import { Copy } from './basics.js';

const FIRST_LENGTH = 4_000;
const FIRST_LINES = 40;
/** The most that is put into the document. More than this is for the clipboard and the raw view. */
const MOST_LENGTH = 500_000;

/** The start of a text that is cheap to show. */
function clip(text: string, length: number, lines: number): string {
  let end = Math.min(text.length, length);
  let at = -1;
  for (let line = 0; line < lines; line += 1) {
    at = text.indexOf('\n', at + 1);
    if (at === -1 || at > end) break;
    if (line === lines - 1) end = at;
  }
  return text.slice(0, end);
}

/** Output of an agent or tool: colours, nothing else. Long output is clipped until the reader wants it. */
export function Output({ text, class: className = '' }: { text: string; class?: string }) {
  const [all, setAll] = useState(false);
  const shown = all
    ? clip(text, MOST_LENGTH, Number.MAX_SAFE_INTEGER)
    : clip(text, FIRST_LENGTH, FIRST_LINES);
  const parts = useMemo(
    () =>
      Anser.ansiToJson(visible(withoutEscapes(shown)), {
        use_classes: true,
        remove_empty: true,
        json: true,
      }),
    [shown],
  );
  const hidden = text.length - shown.length;
  return (
    <>
      <pre class={`output ${className}`}>
        {parts.map((part, index) => {
          const classes = [
            part.fg && `fg-${part.fg.replace('ansi-', '')}`,
            part.bg && `bg-${part.bg.replace('ansi-', '')}`,
            ...(part.decorations ?? []),
          ].filter(Boolean);
          const content = part.content.replaceAll('\u001b', '⟨ESC⟩');
          return classes.length === 0 ? (
            content
          ) : (
            <span key={index} class={classes.join(' ')}>
              {content}
            </span>
          );
        })}
      </pre>
      {hidden > 0 && (
        <p class="more">
          {all ? (
            <>The next {bytes(hidden)} are too much to show here. </>
          ) : (
            <button type="button" class="small" onClick={() => setAll(true)}>
              Show {bytes(hidden)} more
            </button>
          )}
          <Copy text={() => plain(text)} label="Copy all" />
        </p>
      )}
    </>
  );
}
