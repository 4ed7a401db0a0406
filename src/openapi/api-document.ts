import { Injectable } from '@nestjs/common';
import type { OpenAPIObject } from '@nestjs/swagger';
import type { OpenApiVersion } from './schemas.js';

/** The documents that the service serves; made on first use, because few processes are ever asked for one. */
@Injectable()
export class ApiDocument {
  private build: ((version: OpenApiVersion) => OpenAPIObject) | undefined;
  private readonly json = new Map<OpenApiVersion, Buffer>();

  /** Says how a document is made, which takes the whole application. */
  describedBy(build: (version: OpenApiVersion) => OpenAPIObject): void {
    this.build = build;
  }

  /** As JSON. */
  bytes(version: OpenApiVersion): Buffer {
    if (!this.build) throw new Error('Nobody said how the document is made');
    const json = this.json.get(version) ?? Buffer.from(JSON.stringify(this.build(version)));
    this.json.set(version, json);
    return json;
  }
}
