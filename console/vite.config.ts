import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const folder = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Builds the console into `dist/console`, from where the service serves it. */
export default defineConfig({
  root: folder('.'),
  // Relative to the page's <base>, which the service fills in.
  base: './',
  // The service replaces it with a new one for each page.
  html: { cspNonce: '%NONCE%' },
  build: {
    outDir: folder('../dist/console'),
    emptyOutDir: true,
    target: 'es2023',
    // Files of their own: the page's policy knows no data: addresses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
