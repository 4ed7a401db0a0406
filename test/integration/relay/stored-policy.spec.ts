import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { packageRoot } from '../../../src/common/package-root.js';
import type { RelaySetup } from '../../../src/sandboxes/driver/docker/inside/relay-setup.js';

const RELAY = join(packageRoot(), 'dist/src/sandboxes/driver/docker/inside/relay.js');
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'policy-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

it.each([
  ['cannot be read', mkdirSync, 'EISDIR'],
  ['is half', (path: string) => writeFileSync(path, '{"mode":"lim'), 'SyntaxError'],
])('a relay whose policy %s does not fall back to its initial one', (_, make, complaint) => {
  const policyFile = join(folder, 'policy.json');
  make(policyFile);
  const setup: RelaySetup = {
    policy: { mode: 'unrestricted', allowedHosts: [] },
    gateways: [],
    gateway: join(folder, 'egress'),
    sandboxId: 'test',
    policyFile,
    control: join(folder, 'control'),
  };
  const { status, stdout, stderr } = spawnSync(process.execPath, [RELAY, JSON.stringify(setup)], {
    encoding: 'utf8',
    // A relay that starts would wait for its sandbox.
    timeout: 20_000,
  });
  expect(stdout).not.toContain('ready');
  expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining(complaint) });
});
