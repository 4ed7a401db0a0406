import { registerHooks } from 'node:module';

const ROOT = new URL('../../', import.meta.url).href;

/**
 * Lets Node run the TypeScript of `test/` as it is: imports name files with `.js`, and what is imported from `src/`
 * comes from the build, because its decorators have to be compiled.
 */
export function runTypescript() {
  registerHooks({
    resolve(specifier, context, next) {
      if (!specifier.startsWith('.') || !context.parentURL?.startsWith(`${ROOT}test/`))
        return next(specifier, context);
      const { href } = new URL(specifier, context.parentURL);
      return href.startsWith(`${ROOT}src/`)
        ? next(href.replace(`${ROOT}src/`, `${ROOT}dist/src/`), context)
        : next(href.replace(/\.js$/, '.ts'), context);
    },
  });
}
