import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { DRIVERS } from '../../../src/sandboxes/sandboxes.module.js';

/** Which file holds a driver to the contract. */
const SUITES: Record<keyof typeof DRIVERS, string> = {
  local: 'local-driver.spec.ts',
  docker: 'docker-driver.spec.ts',
};

it('every driver has a suite, and its suite is the contract', () => {
  expect(Object.keys(SUITES).sort()).toEqual(Object.keys(DRIVERS).sort());
  for (const file of Object.values(SUITES)) {
    const text = readFileSync(new URL(file, import.meta.url), 'utf8');
    expect(text).toMatch(/^\s*describeSandboxDriver\(/m);
  }
  const probes = readFileSync(new URL('probes.spec.ts', import.meta.url), 'utf8');
  for (const name of Object.keys(DRIVERS)) expect(probes.toLowerCase()).toContain(name);
});
