// What a service does with its data folder, as a process that tests can kill.
// Arguments: the build's folder, the data folder, and what to do.
import { once } from 'node:events';

const [build, dataDir, task] = process.argv.slice(2);
const embedded = `${build}/src/database/embedded`;
const { lockDataDir } = await import(`${embedded}/data-dir.js`);
const { findEmbeddedPostgres, startEmbeddedPostgres } = await import(
  `${embedded}/embedded-postgres.js`
);

const tell = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const log = (line) => tell({ log: line });

const TASKS = {
  async lock() {
    const lock = await lockDataDir(dataDir);
    const told = once(process, 'SIGTERM');
    const finish = once(process, 'SIGUSR2');
    tell({ ready: true });
    await told;
    lock.stopping();
    tell({ stopping: true });
    await finish;
    await lock.release();
  },
  async serve() {
    const lock = await lockDataDir(dataDir);
    const server = await startEmbeddedPostgres({ dataDir, log });
    const told = once(process, 'SIGTERM');
    tell({ ready: true, url: server.url });
    await told;
    await server.stop();
    await lock.release();
  },
  /** A server that does not notice that the service is gone, as on systems that cannot tell it. */
  async leaveBehind() {
    const { chooseRunner } = await import(`${embedded}/program-runner.js`);
    const { launchServer } = await import(`${embedded}/server.js`);
    const { BoundedLog } = await import(`${embedded}/server.js`);
    const cluster = `${dataDir}/postgres`;
    const runner = await chooseRunner(cluster);
    const detached = (...args) => {
      const { file, args: all } = runner.command(...args);
      return { file, args: all.filter((arg) => !arg.startsWith('--pdeathsig')) };
    };
    await launchServer({
      cluster,
      runner: { ...runner, command: detached },
      log: new BoundedLog(`${dataDir}/postgres.log`),
      durability: 'full',
    });
    tell({ ready: true });
  },
  async find() {
    tell({ ready: true, url: (await findEmbeddedPostgres(dataDir))?.url ?? null });
  },
};

const alive = setInterval(() => undefined, 1_000);
try {
  await TASKS[task]();
} catch (error) {
  tell({ error: error.name === 'DataDirError' ? error.message : error.stack });
  process.exitCode = 1;
} finally {
  clearInterval(alive);
}
