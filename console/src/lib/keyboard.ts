import { useEffect, useRef } from 'preact/hooks';

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  // A terminal has the focus by way of a field that takes no text.
  !(target instanceof HTMLTextAreaElement && target.readOnly) &&
  (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));

/** Moves the focus in a list of links, from the focused or the current one. @param links a selector */
export function moveFocus(selector: string, by: number): void {
  const links = [...document.querySelectorAll<HTMLElement>(selector)];
  const at = links.indexOf(document.activeElement as HTMLElement);
  const current = links.findIndex((link) => link.getAttribute('aria-current') === 'page');
  const from = at === -1 ? current : at;
  links[Math.max(0, Math.min(links.length - 1, from + by))]?.focus();
}

/**
 * Runs a handler for keys that are pressed anywhere, but not while the user types, holds a modifier, or has a dialog
 * open.
 */
export function useKeys(handlers: Readonly<Record<string, (event: KeyboardEvent) => void>>): void {
  const latest = useRef(handlers);
  latest.current = handlers;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector('dialog[open]')) return;
      const handler = latest.current[event.key];
      if (!handler) return;
      event.preventDefault();
      handler(event);
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}
