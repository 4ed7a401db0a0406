import { SetMetadata } from '@nestjs/common';

export const OPEN = 'open';

/** Marks a route that needs no token. Everything else does. */
export const Open = () => SetMetadata(OPEN, true);
