import { registerHooks } from 'node:module';

// The suite is TypeScript; Node runs it as it is, but for the names of files in imports.
registerHooks({
  resolve(specifier, context, next) {
    const own = specifier.startsWith('.') && context.parentURL?.includes('/test/faults/');
    return next(own ? specifier.replace(/\.js$/, '.ts') : specifier, context);
  },
});

await import('./chaos-cli.ts');
