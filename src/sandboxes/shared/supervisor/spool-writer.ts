import { closeSync, constants, openSync, writevSync } from 'node:fs';
import { encodeFrameHeader, FRAME_HEADER_BYTES, type SpoolStream } from '../spool/spool-format.js';

/** Appends frames to a spool, in the page cache at once: a killed supervisor leaves at most one torn frame at the end. */
export class SpoolWriter {
  private readonly fd: number;

  constructor(path: string) {
    const flags =
      constants.O_WRONLY |
      constants.O_CREAT |
      constants.O_EXCL |
      constants.O_APPEND |
      constants.O_NOFOLLOW;
    this.fd = openSync(path, flags, 0o600);
  }

  /** @throws what the file system throws, such as ENOSPC */
  append(stream: SpoolStream, payload: Buffer): void {
    const micros = (performance.timeOrigin + performance.now()) * 1000;
    const header = encodeFrameHeader(stream, payload, micros);
    const total = FRAME_HEADER_BYTES + payload.length;
    let written = writevSync(this.fd, [header, payload]);
    while (written < total) {
      // Only a file system that is about to be full writes less than asked; what follows then throws.
      const rest = Buffer.concat([header, payload]).subarray(written);
      written += writevSync(this.fd, [rest]);
    }
  }

  close(): void {
    closeSync(this.fd);
  }
}
