import { ValidateIf } from 'class-validator';

/** For an optional field that is not nullable. class-validator's own `@IsOptional` lets `null` pass, too. */
export const IfPresent = (): PropertyDecorator =>
  ValidateIf((_dto: object, value: unknown) => value !== undefined);

/** For an optional field that may be `null`. */
export const IfPresentAndNotNull = (): PropertyDecorator =>
  ValidateIf((_dto: object, value: unknown) => value !== undefined && value !== null);
