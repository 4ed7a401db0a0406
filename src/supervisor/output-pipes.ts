import { closeSync, constants, openSync, readSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { MAX_FRAME_PAYLOAD, type SpoolStream } from './spool-format.js';

/**
 * One output stream of the runtime. It is a named pipe so that programs can reopen `/dev/stdout`, which is impossible
 * with Node's own pipes (socket pairs).
 */
export class OutputPipe {
  private readonly readEnd: number;
  private socket: Socket | undefined;
  /**
   * The runtime's end. The supervisor closes its copy after the runtime has started, because otherwise the stream would
   * never end.
   */
  readonly writeEnd: number;

  constructor(
    folder: string,
    readonly stream: SpoolStream,
  ) {
    const path = join(folder, stream);
    this.readEnd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    this.writeEnd = openSync(path, constants.O_WRONLY | constants.O_NOFOLLOW);
  }

  releaseWriteEnd(): void {
    closeSync(this.writeEnd);
  }

  /**
   * Passes every read to `take`, and resolves when the last writer is gone. The buffer is reused, so `take` must copy
   * or write it.
   */
  pump(take: (data: Buffer) => void): Promise<void> {
    return new Promise((resolve) => {
      const buffer = Buffer.allocUnsafeSlow(MAX_FRAME_PAYLOAD);
      this.socket = new Socket({
        fd: this.readEnd,
        readable: true,
        writable: false,
        onread: {
          buffer,
          callback: (bytes) => {
            take(buffer.subarray(0, bytes));
            return true;
          },
        },
      });
      this.socket.on('error', () => undefined);
      this.socket.once('close', () => resolve());
      this.socket.resume();
    });
  }

  /** Stops reading; writers get SIGPIPE. */
  stop(): void {
    this.socket?.destroy();
  }

  /**
   * The current content of the pipe, before {@link pump} has started: the error message of a command that did not
   * start.
   */
  drainText(): string {
    const buffer = Buffer.alloc(4096);
    try {
      return buffer.toString('utf8', 0, readSync(this.readEnd, buffer));
    } catch {
      return '';
    }
  }
}
