export const MAX_URL_LENGTH = 2_048;

/**
 * What keeps a text from being the address of something that a sandbox may be sent to: `http` or `https`, and no user
 * or password, which would be shown wherever the address is.
 * @returns one sentence for the client, or `undefined` when all is well.
 */
export function httpUrlProblem(text: string): string | undefined {
  if (text.length > MAX_URL_LENGTH) return `A URL has at most ${MAX_URL_LENGTH} characters`;
  if (/[\s\\]/.test(text) || !URL.canParse(text)) return 'Must be an absolute URL';
  const url = new URL(text);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    return 'Must be a URL that starts with http:// or https://';
  }
  if (url.username !== '' || url.password !== '' || /^[a-z]+:\/\/[^/?#]*@/i.test(text)) {
    return 'A URL must not carry a user or a password';
  }
  return undefined;
}
