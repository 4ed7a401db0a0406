/** Makes one word of a POSIX shell out of any text. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
