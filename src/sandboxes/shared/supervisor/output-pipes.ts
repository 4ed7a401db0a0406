import { closeSync, constants, openSync, readSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { MAX_FRAME_PAYLOAD, type SpoolStream } from '../spool/spool-format.js';

/**
 * One output stream of the runtime: a named pipe, so that programs can reopen `/dev/stdout`, which Node's own pipes
 * (socket pairs) do not allow.
 */
export class OutputPipe {
  private readonly readEnd: number;
  private socket: Socket | undefined;
  /** What the runtime gets. The supervisor closes its copy once the runtime has it, or the end would never come. */
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

  /** Gives every read to `take`, and resolves when the last writer is gone. The buffer is reused: copy or write it. */
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

  /** Stops taking output; the writers get SIGPIPE. */
  stop(): void {
    this.socket?.destroy();
  }

  /** What is in the pipe now, before {@link pump} has begun: the complaint of something that never started. */
  drainText(): string {
    const buffer = Buffer.alloc(4096);
    try {
      return buffer.toString('utf8', 0, readSync(this.readEnd, buffer));
    } catch {
      return '';
    }
  }
}
