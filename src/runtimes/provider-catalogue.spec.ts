import { describe, expect, it } from '@jest/globals';
import { AppConfig } from '../config/app-config.js';
import { ProviderCatalogue } from './provider-catalogue.js';
import { RUNTIMES } from './registry.js';

const catalogue = new ProviderCatalogue(RUNTIMES, {} as AppConfig);

describe('models', () => {
  it.each([
    ['openai', 'o1'],
    ['openai', 'o3'],
    ['codex', 'o4-mini'],
    ['openai', 'gpt-5'],
    ['openai', 'openai/o3'],
    ['opencode', 'opencode/o3'],
    ['opencode', 'openai/o3'],
    ['anthropic', 'claude-sonnet-4-5'],
    ['shell', 'shell/bash'],
  ])('of %s: %s', (provider, model) => {
    expect(() => catalogue.requireModelOf(provider, model)).not.toThrow();
  });

  it.each([
    ['openai', 'gpt-'],
    ['openai', 'claude-x'],
    ['openai', 'openai/'],
    ['openai', 'o2'],
    ['anthropic', 'claude-'],
    ['opencode', 'o3'],
    ['opencode', 'openai/'],
    ['shell', 'shell/'],
  ])('that are not of %s: %s', (provider, model) => {
    expect(() => catalogue.requireModelOf(provider, model)).toThrow('does not match provider');
  });
});
