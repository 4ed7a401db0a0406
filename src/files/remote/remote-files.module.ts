import { Module } from '@nestjs/common';
import { SessionsModule } from '../../sessions/sessions.module.js';
import { SandboxReach } from './sandbox-reach.service.js';
import { WorkerTokens } from './worker-tokens.js';

/** Reaches files of sandboxes on other hosts. Workers serve theirs with `SandboxFilesListener`. */
@Module({
  imports: [SessionsModule],
  providers: [SandboxReach, WorkerTokens],
  exports: [SandboxReach, WorkerTokens],
})
export class RemoteFilesModule {}
