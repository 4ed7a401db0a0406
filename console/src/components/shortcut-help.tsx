import { useEffect, useRef, useState } from 'preact/hooks';
import { useKeys } from '../lib/keyboard.js';

const KEYS = [
  ['/', 'Search'],
  ['j, k', 'Next and previous item of the list'],
  ['Enter', 'Open the item'],
  ['n', 'New session, agent or environment'],
  ['Esc', 'Back to the list'],
  ['1 … 6', 'Views of a session'],
  ['Ctrl+Enter', 'Send the prompt'],
  ['?', 'This help'],
] as const;

/** The keyboard's help, opened with `?`. */
export function ShortcutHelp() {
  const [open, setOpen] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  useKeys({ '?': () => setOpen(true) });
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  if (!open) return null;
  return (
    <dialog ref={dialog} aria-labelledby="keys-title" onClose={() => setOpen(false)}>
      <h2 id="keys-title">Keyboard</h2>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="actions">
        <button type="button" onClick={() => setOpen(false)}>
          Close
        </button>
      </p>
    </dialog>
  );
}
