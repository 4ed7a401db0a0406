import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { SpritesError } from './sprites-api.js';

/** What people read while a sprite cannot be created. */
export function reasonToWait(error: Error): string {
  if (!(error instanceof SpritesError)) return 'Waiting for Sprites to answer';
  if (error.code === 'concurrent_sprite_limit_exceeded') {
    return 'Waiting for a free sprite: the account runs as many as it may';
  }
  return error.status === 429
    ? 'Waiting for Sprites: too many sandboxes were created at once'
    : 'Waiting for Sprites, which has no room at the moment';
}

/** What a caller of the driver gets instead of the vendor's errors. */
export function asSandboxError(error: unknown): unknown {
  if (!(error instanceof SpritesError)) return error;
  const { status, message, isTemporary } = error;
  const cause = { cause: error };
  if (status === 401 || status === 403) {
    const text = 'Sprites does not accept the token: check SPRITES_TOKEN';
    return new SandboxError('unavailable', text, cause);
  }
  if (isTemporary || status === 404) {
    return new SandboxError('unavailable', `Sprites answers ${status}: ${message}`, cause);
  }
  return new SandboxError('failed', `Sprites answers ${status}: ${message}`, cause);
}

/** For `catch`: these answers are as good as a success. */
export function unlessStatus<T = undefined>(statuses: readonly number[], value?: T) {
  return (error: unknown): T => {
    if (error instanceof SpritesError && statuses.includes(error.status)) return value as T;
    throw asSandboxError(error);
  };
}
