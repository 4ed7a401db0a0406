import { Module } from '@nestjs/common';
import { AuthModule } from '../auth/auth.module.js';
import { ConsoleFiles } from './console-files.js';
import { ConsolePageController } from './console-page.controller.js';
import { ConsoleSessionController } from './console-session.controller.js';

/** The web console: its files, and the exchange of access tokens for its cookie. */
@Module({
  imports: [AuthModule],
  // The page answers every path that the others leave, so it comes last.
  controllers: [ConsoleSessionController, ConsolePageController],
  providers: [ConsoleFiles],
})
export class ConsoleModule {}
