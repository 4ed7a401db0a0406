import type { Type } from '@nestjs/common';

/** A schema that no class stands for. */
export interface NamedSchema {
  name: string;
  schema: Record<string, unknown>;
}

interface Union {
  /** Its members; as a function, because classes may be declared after it. */
  members: () => readonly (Type | NamedSchema)[];
  /** The member that tells which one it is, and its values. */
  discriminator?: { propertyName: string; mapping: () => Record<string, Type> };
}

const UNIONS = new Map<Type, Union>();

/**
 * Makes the schema of a class a named `oneOf`. OpenAPI generators give a union that stands inline a made-up name, or
 * none at all; Nest's decorators only know those.
 */
export function OneOf(union: Union): ClassDecorator {
  return (target) => {
    UNIONS.set(target as unknown as Type, union);
  };
}

/** Every class that {@link OneOf} marks. */
export const unions = (): ReadonlyMap<Type, Union> => UNIONS;
