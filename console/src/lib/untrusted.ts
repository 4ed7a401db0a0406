/**
 * Text of an agent is only ever put into text nodes, where markup means nothing. What remains dangerous in a text node
 * are characters that change how the text around them is read; these are shown by their code instead.
 */

/** Controls except tab, line feed and escape; and characters that change the direction of text or are invisible. */
const MISLEADING =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Characters that change the direction of text, for a terminal, which handles controls itself. */
const BIDIRECTIONAL = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

const code = (character: string): string =>
  `⟨U+${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0').toUpperCase()}⟩`;

/** A carriage return at the end of a line is only the line ending of another system. */
const LINE_ENDINGS = /\r+\n/g;

/** Makes misleading characters visible. Escape stays, for {@link withoutEscapes} or an ANSI parser. */
export const visible = (text: string): string =>
  text.replace(LINE_ENDINGS, '\n').replace(MISLEADING, code);

/** As {@link visible}, for terminals. */
export const visibleDirections = (text: string): string => text.replace(BIDIRECTIONAL, code);

/**
 * Operating system commands (titles, links, the clipboard), device controls, and sequences that move the cursor.
 * Colours (`CSI … m`) stay for the ANSI parser.
 */
const ESCAPES =
  // oxlint-disable-next-line no-control-regex
  /\u001b(?:[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\[[0-?]*[ -/]*[@-ln-~]|[ -/]*[0-Z\\^-~])/g;

/** Removes escape sequences other than colours. */
export const withoutEscapes = (text: string): string => text.replace(ESCAPES, '');

/** Removes all escape sequences. */
export const plain = (text: string): string =>
  // oxlint-disable-next-line no-control-regex
  visible(withoutEscapes(text).replace(/\u001b\[[0-9;:]*m/g, '')).replaceAll('\u001b', '⟨ESC⟩');

/** For names and contents of files: nothing is removed, and what would not be seen is shown by its code. */
export const literal = (text: string): string => visible(text).replaceAll('\u001b', '⟨ESC⟩');

/** @returns the address if it is one that may be offered as a link. */
export function safeLink(address: string): string | undefined {
  if (!URL.canParse(address)) return undefined;
  const { protocol, href } = new URL(address);
  return protocol === 'http:' || protocol === 'https:' ? href : undefined;
}
