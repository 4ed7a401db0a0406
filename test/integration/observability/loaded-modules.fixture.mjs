import { registerHooks } from 'node:module';

// Preloaded into the service: says which packages of OpenTelemetry it loads.
registerHooks({
  load(url, context, nextLoad) {
    const name = /node_modules\/(@opentelemetry\/[^/]+)\//.exec(url)?.[1];
    if (name !== undefined) process.stderr.write(`loaded ${name}\n`);
    return nextLoad(url, context);
  },
});
