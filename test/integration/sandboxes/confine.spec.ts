import { spawnSync } from 'node:child_process';
import { expect, it } from '@jest/globals';
import { packageRoot } from '../../../src/common/package-root.js';
import { becomeUser, confineProgram } from '../../../src/supervisor/confine.js';

// With these numbers the kernel changes nothing, or makes it root: the command would keep the rights of the service.
it.each([2 ** 32 - 1, 2 ** 32, 2 ** 33])('runs nothing as user %i, who does not exist', (user) => {
  const [program = '', ...options] = becomeUser(confineProgram(packageRoot()), user);
  const { status, stdout, stderr } = spawnSync(program, [...options, '/usr/bin/id', '-u'], {
    encoding: 'utf8',
  });
  expect({ status, stdout }).toEqual({ status: 125, stdout: '' });
  expect(stderr).toContain(`there is no user ${user}`);
});
