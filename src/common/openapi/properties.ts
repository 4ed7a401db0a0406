import { ApiProperty } from '@nestjs/swagger';

interface Options {
  nullable?: true;
  required?: false;
  example?: unknown;
  minimum?: number;
}

/**
 * A whole number: TypeScript has only `number`. Defaults belong into the description: generators of types take a member
 * with a default for one that is always there, in requests, too.
 */
export const Integer = (options: Options = {}): PropertyDecorator =>
  ApiProperty({ type: 'integer', ...options });

/** The id of a log row, which all sessions share: may be beyond 32 bits, for which languages with types have to know it. */
export const LogRowId = (options: Pick<Options, 'minimum' | 'example'>): PropertyDecorator =>
  ApiProperty({ type: 'integer', format: 'int64', ...options });

/** Microseconds are part of the promise; a language's date type may round them away. */
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
