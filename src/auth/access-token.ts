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

/** Could this be a token of ours? A typo or a foreign secret is told apart without asking the database. */
export function isWellFormedAccessToken(text: string): boolean {
  if (!SHAPE.test(text)) return false;
  const body = text.slice(0, -CHECKSUM_LENGTH);
  return checksum(body) === text.slice(-CHECKSUM_LENGTH);
}

/** Is this, or was it meant to be, a token of ours? Then it must not be shown or kept. */
export function looksLikeAccessToken(text: string): boolean {
  return text.trim().startsWith(PREFIX);
}

/**
 * What is stored of a token, and what it is looked up by. The token has 256 random bits, so a plain SHA-256 cannot be
 * reversed by guessing; and comparing hashes in an index tells nothing about the token by its timing.
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
