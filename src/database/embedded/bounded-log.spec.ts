import { closeSync, mkdtempSync, readFileSync, rmSync, statSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { BoundedLog } from './server.js';

describe('BoundedLog', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'bounded-log-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  test('sets a full log aside and lets its writer go on in the new one', () => {
    const log = new BoundedLog(join(folder, 'server.log'), 100);
    const writer = log.open();
    writeSync(writer, 'old\n'.repeat(30));
    log.trim();
    writeSync(writer, 'new\n');
    log.trim();
    closeSync(writer);
    log.close();

    expect(readFileSync(log.path, 'utf8')).toBe('new\n');
    expect(readFileSync(`${log.path}.1`, 'utf8')).toBe('old\n'.repeat(30));
  });

  test('is for its owner only', () => {
    const log = new BoundedLog(join(folder, 'server.log'));
    log.close();
    expect(statSync(log.path).mode & 0o777).toBe(0o600);
  });
});
