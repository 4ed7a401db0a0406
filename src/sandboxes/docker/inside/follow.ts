/**
 * Follows a launch inside of its container and writes its events to standard output. Ends with its standard input, that
 * is with whoever wanted to know; `tied` then ends the launch as well.
 * Arguments: the launch's folder, an offset, the kernel user of what runs without a supervisor, and `tied` or nothing.
 */
import { writeSync } from 'node:fs';
import { endLaunch, sweepLaunch } from '../../shared/launch/launch-end.js';
import { LaunchFolder } from '../../shared/launch/launch-folder.js';
import { followSpool } from '../../shared/spool/spool-reader.js';
import { encodeEvent } from './follow-protocol.js';

const [, , path = '', offset = '', uid = '', tied = ''] = process.argv;
const folder = new LaunchFolder(path);
const gone = new AbortController();

function write(buffer: Buffer): void {
  for (let done = 0; done < buffer.length;) {
    try {
      done += writeSync(1, buffer, done);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    }
  }
}

process.stdin.resume().once('close', () => {
  gone.abort();
  if (tied !== '') void endLaunch(folder).then(() => process.exit(0));
  else process.exit(0);
});
try {
  for await (const event of followSpool(folder, Number(offset), gone.signal)) {
    if (event.kind === 'exit' && event.reason === 'lost') sweepLaunch(folder, Number(uid));
    write(Buffer.concat(encodeEvent(event)));
  }
  process.exit(0);
} catch (error) {
  if (!gone.signal.aborted) throw error;
}
