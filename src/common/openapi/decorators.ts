import { ApiProperty } from '@nestjs/swagger';
import type { Type } from '@nestjs/common';

interface Options {
  nullable?: true;
  required?: false;
  example?: unknown;
  minimum?: number;
}

/**
 * An integer, because TypeScript has only `number`. Put defaults into the description: generators treat a member with a
 * `default` as always present, even in requests.
 */
export const Integer = (options: Options = {}): PropertyDecorator =>
  ApiProperty({ type: 'integer', ...options });

/** The id of a log row. All sessions share the sequence, so ids may exceed 32 bits; typed languages need the format. */
export const LogRowId = (options: Pick<Options, 'minimum' | 'example'>): PropertyDecorator =>
  ApiProperty({ type: 'integer', format: 'int64', ...options });

/** A timestamp with microseconds, as text, because date types of some languages would lose them. */
export const Timestamp = (options: Pick<Options, 'nullable'> = {}): PropertyDecorator =>
  ApiProperty({
    type: String,
    format: 'date-time',
    example: '2026-01-31T12:00:00.123456+00:00',
    ...options,
  });

/** An id: lower-case, as the server writes them. */
export const Uuid = (options: Pick<Options, 'nullable' | 'example'> = {}): PropertyDecorator =>
  ApiProperty({
    type: String,
    format: 'uuid',
    example: '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10',
    ...options,
  });

/** A schema without a class of its own. */
interface NamedSchema {
  name: string;
  schema: Record<string, unknown>;
}

/**
 * The members by the values of `type`, if that distinguishes them. A function, because classes may be declared later.
 */
type Members = () => Record<string, Type> | readonly (Type | NamedSchema)[];

const UNIONS = new Map<Type, Members>();

/**
 * Makes the schema of a class a named `oneOf`. Nest's decorators only make inline unions, for which client generators
 * invent a name or generate nothing.
 */
export function OneOf(members: Members): ClassDecorator {
  return (target) => {
    UNIONS.set(target as unknown as Type, members);
  };
}

/** All classes with {@link OneOf}. */
export const unions = (): ReadonlyMap<Type, Members> => UNIONS;
