import { Module } from '@nestjs/common';
import { SessionsModule } from '../../sessions/sessions.module.js';
import { ChangesKeeper } from './changes-keeper.service.js';
import { TurnChanges } from './turn-changes.repository.js';

/** What turns have changed, for all roles. */
@Module({
  imports: [SessionsModule],
  providers: [ChangesKeeper, TurnChanges],
  exports: [ChangesKeeper, TurnChanges],
})
export class KeptChangesModule {}
