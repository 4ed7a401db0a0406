import { ValidateBy } from 'class-validator';
import type { ValidationItem } from '../errors.js';

/** The constraint that reports where inside a value it found something wrong. */
export const LOCATED = 'located';

/** @returns what is wrong with `value`; `loc` is relative to it, `[]` for the value itself. */
export type LocatedCheck = (value: unknown) => ValidationItem[];

/**
 * Validates a value with a plain function whose findings have places: class-validator's own constraints only say which
 * property is wrong. The validation pipe asks {@link locatedProblems} for the findings.
 */
export function Located(check: LocatedCheck): PropertyDecorator {
  return ValidateBy(
    {
      name: LOCATED,
      validator: {
        validate: (value) => check(value).length === 0,
        defaultMessage: () => 'Invalid value',
      },
    },
    { context: { check } },
  );
}

/** What the {@link Located} constraint of a failed property has found, or `undefined` when another one failed. */
export function locatedProblems(
  contexts: Readonly<Record<string, unknown>> | undefined,
  value: unknown,
): ValidationItem[] | undefined {
  const context = contexts?.[LOCATED] as { check: LocatedCheck } | undefined;
  return context?.check(value);
}

/** One finding. */
export function problem(
  type: string,
  msg: string,
  loc: readonly (string | number)[] = [],
): ValidationItem {
  return { type, loc: [...loc], msg };
}

/** Puts findings deeper, to where their value stands. */
export function under(
  path: readonly (string | number)[],
  items: readonly ValidationItem[],
): ValidationItem[] {
  return items.map(({ type, loc, msg }) => problem(type, msg, [...path, ...loc]));
}
