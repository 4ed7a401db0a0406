import { applyDecorators, SetMetadata } from '@nestjs/common';
import { ApiSecurity } from '@nestjs/swagger';

export const OPEN = 'open';

/** Marks a route that needs no token. Everything else does. */
export const Open = (): MethodDecorator =>
  applyDecorators(SetMetadata(OPEN, true), ApiSecurity({}));
