import { SandboxError } from '../sandbox-error.js';

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export function isId(text: string): boolean {
  return ID.test(text);
}

/** Ids become names of folders: anything else would be a path. */
export function requireId(text: string): string {
  if (!isId(text)) throw new SandboxError('failed', 'not a sandbox or launch id');
  return text;
}
