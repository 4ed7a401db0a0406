const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const SPACE = 0x20;

/** Members at deeper levels are skipped. */
const MAX_DEPTH = 6;
/** How many bytes of a name or value are kept. Longer names match no member, and longer strings are ignored. */
const MAX_TOKEN_BYTES = 200;

/** An object or array that is open. */
interface Level {
  isArray: boolean;
  /** The members' path so far, with a dot at the end; `''` at the root. */
  prefix: string;
  /** The path of the member whose value comes next; `undefined` while a name is expected. */
  path: string | undefined;
}

/**
 * Finds a few members in JSON as its bytes pass. It keeps only the open levels and the current name or value, so memory
 * does not depend on the size of the text. The elements of an array at the root are read like separate texts; members
 * of other arrays have `[]` in their path.
 */
export class JsonFields {
  /** How many objects and arrays are open. */
  depth = 0;
  private readonly levels: Level[] = [];
  private inString = false;
  private isEscaped = false;
  /** The bytes of the current name or value; `undefined` if nobody needs them. */
  private token: number[] | undefined;

  /**
   * @param wanted paths such as `usage.input_tokens`
   * @param found called with each wanted member that is a string, number, boolean or null; with `{}` or `[]` where one that
   *   is an object or array begins
   */
  constructor(
    private readonly wanted: ReadonlySet<string>,
    private readonly found: (path: string, value: unknown) => void,
  ) {}

  /** Forgets an unfinished text. */
  reset(): void {
    this.depth = 0;
    this.levels.length = 0;
    this.inString = false;
    this.isEscaped = false;
    this.token = undefined;
  }

  push(bytes: Uint8Array, start = 0, end = bytes.length): void {
    for (let i = start; i < end; i += 1) {
      if (!this.inString) this.structure(bytes[i] ?? 0);
      else if (this.token !== undefined || this.isEscaped) this.character(bytes[i] ?? 0);
      else {
        while (i < end && bytes[i] !== QUOTE && bytes[i] !== BACKSLASH) i += 1;
        if (i < end) this.character(bytes[i] ?? 0);
      }
    }
  }

  /** One byte of a string. */
  private character(byte: number): void {
    if (this.isEscaped) this.isEscaped = false;
    else if (byte === BACKSLASH) this.isEscaped = true;
    else if (byte === QUOTE) {
      this.inString = false;
      this.keep(byte);
      const level = this.level;
      if (level !== undefined && !level.isArray && level.path === undefined)
        level.path = level.prefix + String(this.takeToken());
      return;
    }
    this.keep(byte);
  }

  /** One byte outside of strings. */
  private structure(byte: number): void {
    switch (byte) {
      case QUOTE:
        this.inString = true;
        this.token = this.isNeeded() ? [byte] : undefined;
        return;
      case OPEN_OBJECT:
      case OPEN_ARRAY:
        return this.open(byte === OPEN_ARRAY);
      case CLOSE_OBJECT:
      case CLOSE_ARRAY:
        this.endValue();
        this.depth = Math.max(0, this.depth - 1);
        if (this.levels.length > this.depth) this.levels.length = this.depth;
        return;
      case COMMA:
        return this.endValue();
      case COLON:
        return;
      default:
        if (byte <= SPACE) return;
        this.token ??= this.isNeeded() ? [] : undefined;
        this.keep(byte);
    }
  }

  private open(isArray: boolean): void {
    const prefix = this.depth === 0 ? '' : this.childPrefix();
    const path = this.level?.path;
    if (path !== undefined && this.wanted.has(path)) this.found(path, isArray ? [] : {});
    this.depth += 1;
    if (this.depth > MAX_DEPTH) return;
    const first = !isArray ? undefined : this.depth === 1 ? '' : `${prefix}[]`;
    this.levels.push({ isArray, prefix, path: first });
  }

  private childPrefix(): string {
    const path = this.level?.path ?? '';
    return path === '' ? '' : `${path}.`;
  }

  /** The innermost level; `undefined` outside of all levels and where they are too deep to be kept. */
  private get level(): Level | undefined {
    return this.depth > this.levels.length ? undefined : this.levels.at(-1);
  }

  /** Whether the name or value that begins here has to be kept. */
  private isNeeded(): boolean {
    const level = this.level;
    if (level === undefined) return false;
    return level.path === undefined || this.wanted.has(level.path);
  }

  private keep(byte: number): void {
    if (this.token !== undefined && this.token.length < MAX_TOKEN_BYTES) this.token.push(byte);
  }

  private takeToken(): unknown {
    const { token } = this;
    this.token = undefined;
    if (token === undefined) return undefined;
    try {
      return JSON.parse(Buffer.from(token).toString('utf8'));
    } catch {
      return undefined;
    }
  }

  private endValue(): void {
    const level = this.level;
    if (level === undefined) return;
    const { path } = level;
    if (this.token !== undefined && path !== undefined) {
      const value = this.takeToken();
      if (value !== undefined) this.found(path, value);
    }
    if (!level.isArray) level.path = undefined;
  }
}
