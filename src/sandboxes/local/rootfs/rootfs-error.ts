/** The template could not be made; the message says why and, where there is one, the command that helps. */
export class RootfsError extends Error {
  override readonly name = 'RootfsError';
}
