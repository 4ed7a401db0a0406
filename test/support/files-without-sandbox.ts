import { spawn } from 'node:child_process';
import { packageRoot } from '../../src/common/package-root.js';
import { confine, confineProgram } from '../../src/supervisor/confine.js';
import { FileAccess } from '../../src/supervisor/files/file-access.js';
import { callFiles } from '../../src/supervisor/files/file-call.js';

/** Access to the files below a folder of this machine, without a sandbox. */
export function filesBelow(root: string): FileAccess {
  return new FileAccess((call) => {
    const [program = '', ...args] = confine(confineProgram(packageRoot()), { files: true });
    const child = spawn(program, args, {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { TMPDIR: root },
    });
    return callFiles(child, { ...call, roots: { home: root, workspace: root }, room: 0 });
  });
}
