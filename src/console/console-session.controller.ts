import { Body, Controller, Delete, Get, Header, HttpCode, Post, Req, Res } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { IsString, MaxLength } from 'class-validator';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Accounts } from '../auth/accounts.js';
import { ConsoleCookie } from '../auth/console-cookie.js';
import { TokenVerifier } from '../auth/token-verifier.js';
import { unauthorized } from '../common/errors.js';
import { PublicRoute } from '../common/request-decorators.js';

const MAX_TOKEN = 200;

/** The form of the sign-in page. */
class SignInDto {
  @IsString()
  @MaxLength(MAX_TOKEN)
  token!: string;
}

/** Who is signed in; nobody is `null`. */
interface SignedIn {
  user: { name: string; operator: boolean } | null;
}

/**
 * Signs browsers in and out. Not part of the documented interface: programs send their token with every request, and
 * other pages cannot use the cookie.
 */
@ApiExcludeController()
@Controller('console/session')
export class ConsoleSessionController {
  constructor(
    private readonly cookie: ConsoleCookie,
    private readonly verifier: TokenVerifier,
    private readonly accounts: Accounts,
  ) {}

  /** Exchanges an access token for the cookie. Only for the console's own page: see {@link requireOwnPage}. */
  @PublicRoute()
  @Post()
  @HttpCode(200)
  @Header('cache-control', 'no-store')
  async signIn(
    @Body() { token }: SignInDto,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<SignedIn> {
    const origin = this.requireOwnPage(request);
    const owner = await this.verifier.verify(token.trim());
    if (!owner) throw unauthorized('This access token is not valid, or no longer valid');
    void reply.header('set-cookie', this.cookie.issue(token.trim(), origin));
    return this.signedIn(owner.userId);
  }

  /** Public because not being signed in is an answer here, and no error. */
  @PublicRoute()
  @Get()
  @Header('cache-control', 'no-store')
  async current(@Req() { method, headers }: FastifyRequest): Promise<SignedIn> {
    const token = this.cookie.tokenOf(method, headers);
    const owner = token === undefined ? undefined : await this.verifier.verify(token);
    return owner ? this.signedIn(owner.userId) : { user: null };
  }

  /** Works without a valid cookie, too: its token may have been revoked. */
  @PublicRoute()
  @Delete()
  @Header('cache-control', 'no-store')
  signOut(
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): { detail: string } {
    void reply.header('set-cookie', this.cookie.clear(this.requireOwnPage(request)));
    return { detail: 'Signed out' };
  }

  private async signedIn(userId: string): Promise<SignedIn> {
    const { name, operator } = await this.accounts.getUserById(userId);
    return { user: { name, operator } };
  }

  /**
   * Otherwise another site could sign a browser in as somebody else, and see what its user then enters.
   * @returns the page's origin.
   * @throws DomainError 401.
   */
  private requireOwnPage({ method, headers }: FastifyRequest): string {
    if (headers.origin !== undefined && this.cookie.isFromOwnPage(method, headers)) {
      return headers.origin;
    }
    throw unauthorized('Sign in on the page of the console; another origin sent this request');
  }
}
