import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** Nothing is loaded from elsewhere, so the page works without the internet. Addresses are relative: to `/`, or a proxy's prefix. */
export const DOCS_PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Agent Session Service</title>
    <link rel="stylesheet" href="docs/swagger-ui.css" />
    <link rel="icon" href="docs/favicon-32x32.png" />
  </head>
  <body>
    <div id="docs"></div>
    <script src="docs/swagger-ui-bundle.js"></script>
    <script src="docs/page.js"></script>
  </body>
</html>
`;

/** No inline script, so that the page's policy can forbid those. `validatorUrl` would send the document to a public site. */
const PAGE_SCRIPT = `SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  validatorUrl: null,
});
`;

export const DOCS_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";

export interface Asset {
  type: string;
  bytes: Buffer;
}

const loadPackaged = async (specifier: string): Promise<Buffer> =>
  readFile(fileURLToPath(import.meta.resolve(specifier)));

/** What the page is made of, by name. Not a folder: nothing else can be asked for. */
const ASSETS = new Map<string, { type: string; load: () => Promise<Buffer> }>([
  [
    'swagger-ui.css',
    { type: 'text/css; charset=utf-8', load: () => loadPackaged('swagger-ui-dist/swagger-ui.css') },
  ],
  [
    'swagger-ui-bundle.js',
    {
      type: 'text/javascript; charset=utf-8',
      load: () => loadPackaged('swagger-ui-dist/swagger-ui-bundle.js'),
    },
  ],
  [
    'favicon-32x32.png',
    { type: 'image/png', load: () => loadPackaged('swagger-ui-dist/favicon-32x32.png') },
  ],
  [
    'page.js',
    { type: 'text/javascript; charset=utf-8', load: async () => Buffer.from(PAGE_SCRIPT) },
  ],
]);

/** @returns a file of the page, `undefined` when it has none of that name. */
export async function docsAsset(name: string): Promise<Asset | undefined> {
  const asset = ASSETS.get(name);
  return asset && { type: asset.type, bytes: await asset.load() };
}
