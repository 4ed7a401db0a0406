import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DataSource } from 'typeorm';
import { ACCOUNT_ENTITIES, Accounts } from './accounts.js';
import { BearerAuthentication } from './bearer-authentication.service.js';
import { ConsoleCookie } from './console-cookie.js';
import { LastUse, TokenLookups, TokenVerifier, TokensRepository } from './token-verifier.js';
import { RequestRate } from './request-rate.js';

/** Users, access tokens, and the authentication of every route. */
@Module({
  imports: [TypeOrmModule.forFeature(ACCOUNT_ENTITIES)],
  providers: [
    TokensRepository,
    TokenLookups,
    TokenVerifier,
    LastUse,
    RequestRate,
    {
      provide: Accounts,
      inject: [DataSource],
      useFactory: (source: DataSource) => new Accounts(source),
    },
    ConsoleCookie,
    BearerAuthentication,
  ],
  exports: [Accounts, ConsoleCookie, TokenVerifier],
})
export class AuthModule {}
