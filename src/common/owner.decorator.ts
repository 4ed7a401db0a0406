import { createParamDecorator, type ExecutionContext } from '@nestjs/common';

/** Who a request acts for; put on the request by the bearer guard. */
export interface Owner {
  userId: string;
  tokenId: string;
}

/** Fastify's request after the guard. */
export interface OwnedRequest {
  owner?: Owner;
}

/** The id of the user whose token the request carries. */
export const OwnerId = createParamDecorator((_data: unknown, context: ExecutionContext): string => {
  const { owner } = context.switchToHttp().getRequest<OwnedRequest>();
  if (!owner) throw new Error('A route asks for its owner without the bearer guard');
  return owner.userId;
});
