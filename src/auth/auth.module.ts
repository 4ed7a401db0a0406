import { Module } from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DataSource } from 'typeorm';
import { ACCOUNT_ENTITIES, Accounts } from './accounts.js';
import { BearerGuard } from './bearer.guard.js';
import { LastUse } from './last-use.js';
import { TokenVerifier } from './token-verifier.js';
import { TokensRepository } from './tokens.repository.js';

/** Users, access tokens, and the guard in front of every route. */
@Module({
  imports: [TypeOrmModule.forFeature(ACCOUNT_ENTITIES)],
  providers: [
    TokensRepository,
    TokenVerifier,
    LastUse,
    {
      provide: Accounts,
      inject: [DataSource],
      useFactory: (source: DataSource) => new Accounts(source),
    },
    { provide: APP_GUARD, useClass: BearerGuard },
  ],
  exports: [Accounts],
})
export class AuthModule {}
