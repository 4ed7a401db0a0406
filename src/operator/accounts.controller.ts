import { Body, Controller, Get, Header, HttpCode, Param, Post, Query } from '@nestjs/common';
import { ApiQuery, ApiResponse, ApiTags } from '@nestjs/swagger';
import { Accounts } from '../auth/accounts.js';
import { DetailResponse } from '../common/openapi/error-responses.dto.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { CurrentUser } from '../common/request-decorators.js';
import {
  CREATE_TOKEN_EXAMPLES,
  CREATE_USER_EXAMPLES,
  CreateTokenDto,
  CreateUserDto,
  IssuedTokenObject,
  TokenList,
  UserList,
  UserObject,
} from './dto/operator.dto.js';
import { BAD_LIMIT, Limit, LimitQuery } from './limit.js';
import { pageOf, presentIssued, presentToken, presentUser } from './operator.presenter.js';
import { OperatorService } from './operator.service.js';

/** Users and their tokens, for operators. */
@ApiTags('operator')
@Controller('operator')
export class AccountsController {
  constructor(
    private readonly accounts: Accounts,
    private readonly operator: OperatorService,
  ) {}

  /** Lists the users, oldest first. */
  @Operation({ id: 'listUsers', forOperators: true, refusals: { 400: [BAD_LIMIT] } })
  @LimitQuery()
  @ApiResponse({ status: 200, type: UserList })
  @Get('users')
  async listUsers(@Limit() limit: number): Promise<UserList> {
    return pageOf(await this.accounts.listUsers(limit + 1), limit, presentUser);
  }

  /** Creates a user. Only the command line makes operators: `user create --operator`. */
  @Operation({
    id: 'createUser',
    forOperators: true,
    body: { type: CreateUserDto, examples: CREATE_USER_EXAMPLES },
    refusals: { 400: ['A user needs a name'], 409: ['There already is a user "alice"'] },
  })
  @ApiResponse({ status: 201, type: UserObject })
  @Post('users')
  async createUser(
    @CurrentUser() by: string,
    @Body() { name, session_limit: sessionLimit = null }: CreateUserDto,
  ): Promise<UserObject> {
    return presentUser(await this.operator.createUser(by, name, sessionLimit));
  }

  /** Lists the tokens of all users without their secrets, newest first. */
  @Operation({ id: 'listTokens', forOperators: true, refusals: { 400: [BAD_LIMIT] } })
  @LimitQuery()
  @ApiQuery({
    name: 'user',
    required: false,
    description: 'Only tokens of the user with this name.',
    schema: { type: 'string' },
  })
  @ApiResponse({ status: 200, type: TokenList })
  @Get('tokens')
  async listTokens(@Limit() limit: number, @Query('user') user: unknown): Promise<TokenList> {
    // A parameter that is sent twice names nobody.
    const name = user === undefined || typeof user === 'string' ? user : '';
    return pageOf(await this.accounts.listTokens(name, limit + 1), limit, presentToken);
  }

  /** Issues a token of a user. The answer is the only one that has its secret. */
  @Operation({
    id: 'createToken',
    forOperators: true,
    body: { type: CreateTokenDto, examples: CREATE_TOKEN_EXAMPLES },
    refusals: { 404: ['There is no such user'] },
  })
  @ApiResponse({ status: 201, type: IssuedTokenObject })
  @Post('users/:id/tokens')
  @Header('cache-control', 'no-store')
  async createToken(
    @CurrentUser() by: string,
    @Param('id') userId: string,
    @Body() { name = '', expires_in_days: days = null }: CreateTokenDto,
  ): Promise<IssuedTokenObject> {
    return presentIssued(await this.operator.issueToken(by, userId, name, days));
  }

  /** Revokes a token: every process rejects it within 5 seconds. */
  @Operation({
    id: 'revokeToken',
    forOperators: true,
    refusals: { 404: ['There is no token with the id "0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10"'] },
  })
  @ApiResponse({ status: 200, type: DetailResponse })
  @Post('tokens/:id/revoke')
  @HttpCode(200)
  async revokeToken(@CurrentUser() by: string, @Param('id') id: string): Promise<DetailResponse> {
    await this.operator.revokeToken(by, id);
    return { detail: 'Token revoked' };
  }
}
