import { Module } from '@nestjs/common';
import { ApiDocument } from './build-document.js';
import { OpenApiController } from './openapi.controller.js';

@Module({ controllers: [OpenApiController], providers: [ApiDocument] })
export class OpenApiModule {}
