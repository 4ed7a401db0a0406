import { Injectable } from '@nestjs/common';
import type { IncomingHttpHeaders } from 'node:http';
import { Clock } from '../common/clock.js';
import { AppConfig } from '../config/app-config.js';
import { KeyRing } from '../secrets/key-ring.js';

/** `__Host-` makes browsers insist on `Secure`, so it is only for pages that came by HTTPS. */
const NAMES = { https: '__Host-console', http: 'console' } as const;
/** The associated data of the sealed cookie: nothing else that the key ring sealed can be sent as one. */
const CONTEXT = 'console.cookie';
const LIFETIME_SECONDS = 7 * 86_400;
/** Longer ones are not ours. A sealed token has about 200 characters. */
const MAX_LENGTH = 1_000;
const SAFE_METHODS = new Set(['GET', 'HEAD']);

/**
 * The cookie of the web console: the access token and an end of validity, sealed with the key ring. It needs no table,
 * works on every process, ends with its token, and cannot be used as a token.
 */
@Injectable()
export class ConsoleCookie {
  constructor(
    private readonly keyRing: KeyRing,
    private readonly clock: Clock,
    private readonly config: AppConfig,
  ) {}

  /** @returns `Set-Cookie` for a browser whose page has this origin. */
  issue(token: string, origin: string): string {
    const until = this.clock.now() + LIFETIME_SECONDS * 1000;
    return setCookie(
      origin,
      this.keyRing.seal(JSON.stringify({ token, until }), CONTEXT),
      LIFETIME_SECONDS,
    );
  }

  /** @returns `Set-Cookie` that removes the cookie. */
  clear(origin: string): string {
    return setCookie(origin, '', 0);
  }

  /**
   * The access token of a request from the console's own page.
   * @returns `undefined` if there is no valid cookie, or if another site's page caused the request
   */
  tokenOf(method: string, headers: IncomingHttpHeaders): string | undefined {
    if (!this.config.console || headers.cookie === undefined) return undefined;
    if (!this.isFromOwnPage(method, headers)) return undefined;
    for (const name of Object.values(NAMES)) {
      const token = this.open(valueOf(headers.cookie, name));
      if (token !== undefined) return token;
    }
    return undefined;
  }

  /**
   * Whether the request was caused by a page of this service. Browsers send `Origin` with every request that may change
   * something, so there it is required. `Sec-Fetch-Site` also covers requests that only read: `none` is a download or
   * an address that the user entered.
   */
  isFromOwnPage(method: string, headers: IncomingHttpHeaders): boolean {
    const site = headers['sec-fetch-site'];
    const safe = SAFE_METHODS.has(method);
    if (site !== undefined && site !== 'same-origin' && !(safe && site === 'none')) return false;
    if (headers.origin === undefined) return safe;
    return this.isOwnOrigin(headers.origin, headers.host);
  }

  private isOwnOrigin(origin: string, host: string | undefined): boolean {
    if (!URL.canParse(origin)) return false;
    const { publicUrl } = this.config;
    if (publicUrl !== '' && new URL(publicUrl).origin === origin) return true;
    return new URL(origin).host === host?.toLowerCase();
  }

  private open(value: string | undefined): string | undefined {
    if (value === undefined || value.length > MAX_LENGTH) return undefined;
    try {
      const { token, until } = JSON.parse(this.keyRing.open(value, CONTEXT)) as {
        token: string;
        until: number;
      };
      return this.clock.now() < until ? token : undefined;
    } catch {
      return undefined;
    }
  }
}

function setCookie(origin: string, value: string, seconds: number): string {
  const secure = origin.startsWith('https:');
  const name = secure ? NAMES.https : NAMES.http;
  const attributes = ['Path=/', `Max-Age=${seconds}`, 'HttpOnly', 'SameSite=Strict'];
  return [`${name}=${value}`, ...attributes, ...(secure ? ['Secure'] : [])].join('; ');
}

function valueOf(cookies: string, name: string): string | undefined {
  for (const pair of cookies.split(';')) {
    const at = pair.indexOf('=');
    if (pair.slice(0, at).trim() === name) return pair.slice(at + 1).trim();
  }
  return undefined;
}
