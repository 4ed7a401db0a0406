import { Injectable } from '@nestjs/common';
import type { OpenAPIObject } from '@nestjs/swagger';

/** The document that the service serves; made on first use, because few processes are ever asked for it. */
@Injectable()
export class ApiDocument {
  private build: (() => OpenAPIObject) | undefined;
  private json: Buffer | undefined;

  /** Says how the document is made, which takes the whole application. */
  describedBy(build: () => OpenAPIObject): void {
    this.build = build;
  }

  /** As JSON. */
  bytes(): Buffer {
    if (!this.build) throw new Error('Nobody said how the document is made');
    this.json ??= Buffer.from(JSON.stringify(this.build()));
    return this.json;
  }
}
