// Prints the routes that the built application registers, as JSON; run as a process of its own, because the build
// and the tests' own copies of the classes must not meet.
import 'reflect-metadata';

const [build] = process.argv.slice(2);
const { loadConfig } = await import(`${build}/src/config/app-config.js`);
const { createApp } = await import(`${build}/src/create-app.js`);
const { KnownRoutes } = await import(`${build}/src/common/http/routes.js`);

const config = loadConfig({ ...process.env, LOG_LEVEL: 'error' });
const app = await createApp(config, config.databaseUrl);
await app.init();
process.stdout.write(JSON.stringify(app.get(KnownRoutes).all()));
await app.close();
process.exit(0);
