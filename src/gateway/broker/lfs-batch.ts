import { Transform, type TransformCallback } from 'node:stream';

/** Clients ask for 100 objects at a time. Each sandbox may have many such answers in memory. */
const MAX_BYTES = 2 ** 20;

interface Action {
  href?: unknown;
  header?: Record<string, unknown>;
}

/** What a server may answer; nothing in it is certain. */
interface Batch {
  objects?: ({ actions?: Record<string, Action | null> | null } | null)[];
}

/**
 * Rewrites the answer of git LFS's batch API: servers repeat the client's `Authorization` in it, which here is the real
 * token. Objects below the repository are then fetched through the gateway; objects elsewhere keep their address.
 */
export class LfsBatchRewriter extends Transform {
  private readonly chunks: Buffer[] = [];
  private bytes = 0;

  constructor(
    private readonly options: {
      repository: URL;
      /** The gateway as the client sees it. */
      gateway: string;
      /** The `Authorization` that was sent upstream, and what the client is given instead. */
      secret: string;
      replacement: string;
    },
  ) {
    super();
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.bytes += chunk.length;
    if (this.bytes > MAX_BYTES) return done(new Error("the git server's answer is too long"));
    this.chunks.push(chunk);
    done();
  }

  override _flush(done: TransformCallback): void {
    const text = Buffer.concat(this.chunks).toString('utf8');
    try {
      const body = JSON.parse(text) as Batch | null;
      const objects = Array.isArray(body?.objects) ? body.objects : [];
      for (const action of objects.flatMap((object) => Object.values(object?.actions ?? {})))
        if (action !== null) this.rewrite(action);
      this.push(this.withoutSecret(JSON.stringify(body)));
    } catch {
      this.push(this.withoutSecret(text));
    }
    done();
  }

  private rewrite(action: Action): void {
    const { repository, gateway, secret, replacement } = this.options;
    if (typeof action.href !== 'string' || !URL.canParse(action.href)) return;
    const url = new URL(action.href);
    const path = repository.pathname.replace(/\/+$/, '').replace(/\.git$/, '');
    const isOwn =
      url.host === repository.host &&
      (url.pathname.startsWith(`${path}/`) || url.pathname.startsWith(`${path}.git/`));
    for (const [name, value] of Object.entries(action.header ?? {})) {
      if (name.toLowerCase() !== 'authorization' || (value !== secret && !isOwn)) continue;
      delete action.header?.[name];
    }
    if (!isOwn) return;
    action.href = gitAddress(gateway, repository) + url.pathname + url.search;
    action.header = { ...action.header, Authorization: replacement };
  }

  private withoutSecret(text: string): string {
    const { secret, replacement } = this.options;
    // Some servers escape slashes in JSON.
    return text
      .replaceAll(secret, replacement)
      .replaceAll(secret.replaceAll('/', '\\/'), replacement);
  }
}

/** The address of a repository's host through the gateway. @param gateway for example `http://127.0.0.1` */
function gitAddress(gateway: string, { protocol, host }: URL): string {
  return `${gateway}/git/${protocol}${host}`;
}
