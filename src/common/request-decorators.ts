import { RouteConfig } from '@nestjs/platform-fastify';
import { applyDecorators, createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { ApiSecurity } from '@nestjs/swagger';

declare module 'fastify' {
  /** The configuration of a route, which hooks can read before its handler runs. */
  interface FastifyContextConfig {
    /** Needs no token. */
    public?: boolean;
    /** Only there for operators. */
    operator?: boolean;
    /** Takes a body of up to `BODY_LIMIT`. */
    takesBody?: boolean;
    /** Takes a body of any type and length, which its handler reads as a stream. */
    streamsBody?: boolean;
  }
}

/** Marks a route that answers without a token. A route has one mark at most: public routes take no body. */
export const PublicRoute = (): MethodDecorator => RouteConfig({ public: true });

/** Marks a route whose body may be as large as `BODY_LIMIT`. */
export const TakesBody = (): MethodDecorator => RouteConfig({ takesBody: true });

/** Marks a route that is only there for operators: others get the 404 of a path that does not exist. */
export const OperatorRoute = ({ takesBody }: { takesBody: boolean }): MethodDecorator =>
  RouteConfig({ operator: true, takesBody });

/** Marks a route that reads its body as a stream, of any type and length: `request.body` is the stream. */
export const StreamsBody = (): MethodDecorator => RouteConfig({ streamsBody: true });

/** Marks a route that needs no token. Everything else does. */
export const Public = (): MethodDecorator => applyDecorators(PublicRoute(), ApiSecurity({}));

/** The user of a request. The authentication stores it on the request. */
export interface Owner {
  userId: string;
  tokenId: string;
  /** The user's own limits, which replace the configured ones; 0 for none. */
  requestsPerMinute: number | null;
  streamsPerUser: number | null;
  /** Whether routes for operators are there for this user. */
  operator: boolean;
}

/** Fastify's request after the authentication. */
export interface OwnedRequest {
  owner?: Owner;
}

/** The user of the request. */
export const CurrentOwner = createParamDecorator(
  (_data: unknown, context: ExecutionContext): Owner => {
    const { owner } = context.switchToHttp().getRequest<OwnedRequest>();
    if (!owner) throw new Error('A public route has no owner');
    return owner;
  },
);

/** The id of the user whose token the request carries. */
export const CurrentUser = createParamDecorator(
  (_data: unknown, context: ExecutionContext): string => {
    const { owner } = context.switchToHttp().getRequest<OwnedRequest>();
    if (!owner) throw new Error('A public route has no owner');
    return owner.userId;
  },
);
