import { Module } from '@nestjs/common';
import { SessionsModule } from '../sessions/sessions.module.js';
import { ChangesController } from './changes/changes.controller.js';
import { ChangesService } from './changes/changes.service.js';
import { KeptChangesModule } from './changes/kept-changes.module.js';
import { FilesController } from './files.controller.js';
import { FilesService } from './files.service.js';
import { RemoteFilesModule } from './remote/remote-files.module.js';

@Module({
  imports: [SessionsModule, KeptChangesModule, RemoteFilesModule],
  controllers: [FilesController, ChangesController],
  providers: [ChangesService, FilesService],
})
export class FilesModule {}
