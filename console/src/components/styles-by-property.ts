/**
 * Lets the terminal's library work under a strict content security policy, which takes neither style sheets without the
 * page's nonce nor `style` attributes. Setting the same styles as properties is allowed, so that is what becomes of
 * them. The library has no setting for either.
 */
export function applyStylesByProperty(): void {
  if (Object.hasOwn(document, 'createElement')) return;
  const nonce = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce ?? '';
  const create = document.createElement.bind(document);
  document.createElement = (tag: string): HTMLElement => {
    const element = create(tag);
    if (element instanceof HTMLStyleElement) element.nonce = nonce;
    return element;
  };
  HTMLElement.prototype.setAttribute = function set(name: string, value: string): void {
    if (name === 'style') this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
}
