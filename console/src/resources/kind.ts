import type { ApiError } from '../api/client.js';
import type { Page } from '../lib/pages.js';

/** What agents and environments have in common: versions, and an archive. */
export interface Resource {
  id: string;
  name: string | null;
  version: number;
  created_at: string;
  updated_at: string;
  archived_at: string | null;
}

/** The content of a form, as text by field. A box is `true` or empty. */
export type Texts = Readonly<Record<string, string>>;

export interface Field {
  name: string;
  label: string;
  control: 'text' | 'area' | 'select' | 'box';
  rows?: number;
  hint?: string;
  placeholder?: (texts: Texts) => string;
  /** Value and label of what can be selected. */
  options?: readonly (readonly [value: string, label: string])[];
  required?: boolean;
  /** Whether the field matters, given the others. Default: always. */
  when?: (texts: Texts) => boolean;
}

/** One action besides creating and changing. */
export interface ResourceAction<T> {
  label: string;
  title: string;
  text: string;
  /** Whether the resource is gone afterwards. */
  removes: boolean;
  /** Why it is not possible; `undefined` if it is. */
  refusal: (resource: T) => string | undefined;
  run: (id: string) => Promise<unknown>;
}

/** What the pages need to know of a kind of resource. */
export interface Kind<T extends Resource> {
  /** The path of its pages, and the name of several. */
  path: '/agents' | '/environments';
  plural: string;
  singular: string;
  /** What it is for, where there is none yet. */
  purpose: string;
  list: (query: { limit: number; after?: string }, signal?: AbortSignal) => Promise<Page<T>>;
  read: (id: string, signal?: AbortSignal) => Promise<T>;
  /** Newest first, including the current one. */
  versions: (id: string, limit: number, signal: AbortSignal) => Promise<Page<T>>;
  create: (body: object) => Promise<T>;
  update: (id: string, body: object) => Promise<T>;
  actions: readonly ResourceAction<T>[];
  /** The second line of a list's item. */
  summary: (resource: T) => string;
  fields: (known: { environments: readonly Resource[] }) => readonly Field[];
  /** The form's content for a resource, or for a new one. */
  textsOf: (resource: T | undefined) => Texts;
  /**
   * The request for a form's content, with only the members that differ.
   * @param before what the form had first; `undefined` for a new resource, whose empty fields are left out
   * @throws FormError
   */
  bodyOf: (texts: Texts, before: Texts | undefined) => object;
  /** The members that people compare, each as text. */
  membersOf: (version: T) => Readonly<Record<string, string>>;
}

/** What a form's text cannot mean. */
export class FormError extends Error {
  readonly status = 0;
  readonly requestId = null;
}

/** What a form shows as an error. */
export type ShownError = ApiError | FormError;

/** @returns whether a field of the form says something new. */
export function changedIn(texts: Texts, before: Texts | undefined, ...names: string[]): boolean {
  return names.some((name) =>
    before === undefined ? (texts[name] ?? '') !== '' : texts[name] !== before[name],
  );
}

/** Lines that are not empty, without the space around them. */
export const linesOf = (text = ''): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');

/** Reads `NAME=value` lines. @throws FormError */
export function pairsOf(text: string, what: string): Record<string, string> {
  return Object.fromEntries(
    // Values keep their spaces.
    text
      .split('\n')
      .filter((line) => line.trim() !== '')
      .map((line) => {
        const at = line.indexOf('=');
        if (at < 1) throw new FormError(`${what}: ${JSON.stringify(line)} is not NAME=value`);
        return [line.slice(0, at).trim(), line.slice(at + 1)];
      }),
  );
}

/** Reads a list in JSON; nothing is an empty one. @throws FormError */
export function listOf(text: string, what: string): unknown[] {
  if (text.trim() === '') return [];
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value)) return value;
  } catch (error) {
    throw new FormError(`${what}: ${(error as Error).message}`);
  }
  throw new FormError(`${what} must be a JSON list`);
}

export const jsonOf = (value: unknown): string => JSON.stringify(value, null, 2);
