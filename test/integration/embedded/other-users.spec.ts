import { chown, chmod, mkdir, realpath, stat } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';
import { describeWith } from '../../support/requirements.js';
import { ServiceProcess, serversOn, withDataDir, type Wrapper } from './service-process.js';

const REPOSITORY = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');
/** Has a name on every system, and no rights. */
const NOBODY = 65534;
const SEEN = '/mnt';

const inNamespace =
  (script: string): Wrapper =>
  (command) => ['unshare', '--mount', 'sh', '-ec', `${script}\nexec "$@"`, 'sh', ...command];

/** The clone may lie where nobody can go; in a namespace it is bound to where it can. */
const asNobody = async (): Promise<Wrapper> => {
  const modules = await realpath(join(REPOSITORY, 'node_modules'));
  const script = `mount -t tmpfs tmpfs ${SEEN}
mkdir ${SEEN}/repository ${SEEN}/modules
mount --bind '${REPOSITORY}' ${SEEN}/repository
mount --bind '${modules}' ${SEEN}/modules`;
  const moved = (argument: string): string => {
    if (argument.startsWith(modules)) return join(SEEN, 'modules', relative(modules, argument));
    if (!argument.startsWith(REPOSITORY)) return argument;
    return join(SEEN, 'repository', relative(REPOSITORY, argument));
  };
  const drop = ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'];
  return (command) => inNamespace(script)([...drop, ...command.map(moved)]);
};

describeWith(['root', 'mount namespaces'], 'the embedded PostgreSQL of an ordinary user', () => {
  test('runs as that user, and root can take the folder over', () =>
    withDataDir(async (dataDir) => {
      await chown(dataDir, NOBODY, NOBODY);
      const service = ServiceProcess.run('serve', dataDir, await asNobody());
      expect(await service.next()).toMatchObject({ ready: true });
      const [postmaster] = serversOn(dataDir);
      expect((await stat(`/proc/${postmaster}`)).uid).toBe(NOBODY);
      await service.end('SIGTERM');
      expect(serversOn(dataDir)).toEqual([]);

      const root = ServiceProcess.run('serve', dataDir);
      expect(await root.next()).toMatchObject({ ready: true });
      await root.end('SIGTERM');
      expect((await stat(join(dataDir, 'postgres'))).uid).toBe(NOBODY);
    }));

  test('survives a kill -9', () =>
    withDataDir(async (dataDir) => {
      await chown(dataDir, NOBODY, NOBODY);
      for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
        const service = ServiceProcess.run('serve', dataDir, await asNobody());
        expect(await service.next()).toMatchObject({ ready: true });
        await service.end(signal);
      }
      expect(serversOn(dataDir)).toEqual([]);
    }));

  test('is refused where the user may not write', () =>
    withDataDir(async (dataDir) => {
      await chmod(dataDir, 0o755);
      const service = ServiceProcess.run('serve', dataDir, await asNobody());
      expect(await service.next()).toEqual({
        error: `DATA_DIR ${dataDir} is not writable by uid ${NOBODY}`,
      });
    }));

  test('does not touch what belongs to somebody else', () =>
    withDataDir(async (dataDir) => {
      const root = ServiceProcess.run('serve', dataDir);
      await root.next();
      await root.end('SIGTERM');
      await chown(dataDir, NOBODY, NOBODY);
      await chown(join(dataDir, 'lock'), NOBODY, NOBODY);
      const service = ServiceProcess.run('serve', dataDir, await asNobody());
      expect((await service.next()).error).toMatch(/postgres belongs to another user/);
    }));
});

describeWith(['root', 'mount namespaces'], 'the embedded PostgreSQL of root', () => {
  test('runs as another user below a folder that this one cannot enter', () =>
    withDataDir(async (parent) => {
      const dataDir = join(parent, 'below');
      await chmod(parent, 0o700);
      await mkdir(dataDir, { mode: 0o700 });
      const service = ServiceProcess.run('serve', dataDir);
      expect(await service.next()).toMatchObject({ ready: true });
      const [postmaster] = serversOn(dataDir);
      expect((await stat(`/proc/${postmaster}`)).uid).not.toBe(0);
      await service.end('SIGTERM');
      expect((await stat(parent)).mode & 0o777).toBe(0o700);
      expect((await stat(dataDir)).mode & 0o777).toBe(0o700);
    }));

  test('without the right to mount says which path is out of reach, and runs where none is', () =>
    withDataDir(async (parent) => {
      const confined: Wrapper = (command) => [
        'setpriv',
        '--bounding-set=-sys_admin',
        '--inh-caps=-sys_admin',
        ...command,
      ];
      const refused = ServiceProcess.run('serve', join(parent, 'a'), confined);
      expect((await refused.next()).error).toMatch(
        /^PostgreSQL runs as uid \d+, which cannot reach /,
      );

      await chmod(parent, 0o755);
      const service = ServiceProcess.run('serve', join(parent, 'b'), confined);
      const answer = await service.next();
      // Also out of reach where the clone itself is.
      if (answer.error === undefined) {
        const [postmaster] = serversOn(join(parent, 'b'));
        expect((await stat(`/proc/${postmaster}`)).uid).not.toBe(0);
        await service.end('SIGTERM');
      } else expect(answer.error).toContain(`cannot reach ${await realpath(REPOSITORY)}`);
      expect(serversOn(join(parent, 'b'))).toEqual([]);
    }));
});

describeWith(['root', 'mount namespaces'], 'a disk that is full', () => {
  const onDisk = (dataDir: string, size: string): Wrapper =>
    inNamespace(`mount -t tmpfs -o size=${size} tmpfs '${dataDir}'`);

  test.each(['1m', '20m'])('of %s gives one clear line at the first start', (size) =>
    withDataDir(async (dataDir) => {
      const service = ServiceProcess.run('serve', dataDir, onDisk(dataDir, size));
      expect((await service.next()).error).toMatch(
        /^DATA_DIR .*no space left on device for the database/,
      );
    }),
  );
});
