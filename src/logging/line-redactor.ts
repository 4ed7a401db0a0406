import { currentWork } from '../common/work-context.js';

const REPLACEMENT = '[redacted]';
/** Shorter values would redact ordinary text. */
const MIN_LENGTH = 8;
/** An access token, wherever it was sent. */
const ACCESS_TOKEN = /\bast_[0-9A-Za-z]{16,}/g;

/** Takes secrets out of log lines: those of the process, access tokens, and those of the work that is being done. */
export class LineRedactor {
  private readonly secrets: readonly string[];

  /** @param secrets values as configured; short ones are left alone, as they are not recognisable. */
  constructor(secrets: readonly (string | undefined)[]) {
    this.secrets = [...new Set(secrets.flatMap(variantsOf))].sort((a, b) => b.length - a.length);
  }

  redact(line: string): string {
    let clean = line;
    for (const secret of this.secrets) {
      if (clean.includes(secret)) clean = clean.replaceAll(secret, REPLACEMENT);
    }
    if (clean.includes('ast_')) clean = clean.replace(ACCESS_TOKEN, REPLACEMENT);
    return currentWork().redact?.(clean) ?? clean;
  }
}

/** As it is, as JSON writes it, as a URL does, and as it is when it comes from one. */
function variantsOf(secret: string | undefined): string[] {
  if (secret === undefined) return [];
  return [
    secret,
    JSON.stringify(secret).slice(1, -1),
    encodeURIComponent(secret),
    decoded(secret),
  ].filter((variant) => variant.length >= MIN_LENGTH);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
