import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { DRIVERS } from '../../../src/sandboxes/sandboxes.module.js';

/** Which file holds a driver to the contract. */
const SUITES: Record<keyof typeof DRIVERS, string> = {
  local: 'local-driver.spec.ts',
  docker: 'docker-driver.spec.ts',
  kubernetes: '../../kubernetes/kubernetes-driver.spec.ts',
  sprites: '../sprites/sprites-driver.spec.ts',
};

/** Which file attacks a driver's sandboxes from inside. */
const PROBES: Record<keyof typeof DRIVERS, string> = {
  local: 'probes.spec.ts',
  docker: 'probes.spec.ts',
  kubernetes: '../../kubernetes/isolation.spec.ts',
  sprites: '../sprites/isolation.spec.ts',
};

it('every driver has a suite, and its suite is the contract', () => {
  expect(Object.keys(SUITES).sort()).toEqual(Object.keys(DRIVERS).sort());
  for (const file of Object.values(SUITES)) {
    const text = readFileSync(new URL(file, import.meta.url), 'utf8');
    expect(text).toMatch(/^\s*describeSandboxDriver\(/m);
  }
  for (const [name, file] of Object.entries(PROBES)) {
    const probes = readFileSync(new URL(file, import.meta.url), 'utf8');
    expect(probes.toLowerCase()).toContain(name);
  }
});
