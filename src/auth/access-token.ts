import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const PREFIX = 'ast_';
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_BYTES = 32;
/** 62^43 is the first power of 62 above 2^256. */
const SECRET_LENGTH = 43;
/** 62^6 is above 2^32. */
const CHECKSUM_LENGTH = 6;
const SHAPE = new RegExp(`^${PREFIX}[0-9A-Za-z]{${SECRET_LENGTH + CHECKSUM_LENGTH}}$`);

/** @returns a fresh access token: `ast_`, 32 random bytes in base62, a checksum; always 53 characters. */
export function generateAccessToken(): string {
  const bytes = randomBytes(SECRET_BYTES);
  const body = PREFIX + base62(BigInt(`0x${bytes.toString('hex')}`), SECRET_LENGTH);
  return body + checksum(body);
}

/**
 * Whether the text has the shape and checksum of our tokens. Rejects typos and foreign secrets without a database
 * query.
 */
export function isWellFormedAccessToken(text: string): boolean {
  if (!SHAPE.test(text)) return false;
  const body = text.slice(0, -CHECKSUM_LENGTH);
  return checksum(body) === text.slice(-CHECKSUM_LENGTH);
}

/** Whether the text is, or was meant to be, one of our tokens. Such a text must not be shown or stored. */
export function looksLikeAccessToken(text: string): boolean {
  return text.trim().startsWith(PREFIX);
}

/**
 * The hash that is stored for a token and used to look it up. The token has 256 random bits, so a plain SHA-256 cannot
 * be reversed by guessing, and comparing hashes in an index reveals nothing about the token through its timing.
 */
export function hashAccessToken(token: string): Buffer {
  return hash('sha256', token, 'buffer');
}

function checksum(body: string): string {
  return base62(BigInt(crc32(body)), CHECKSUM_LENGTH);
}

function base62(value: bigint, length: number): string {
  const digits: string[] = [];
  for (let rest = value; digits.length < length; rest /= 62n) {
    digits.unshift(ALPHABET.charAt(Number(rest % 62n)));
  }
  return digits.join('');
}
