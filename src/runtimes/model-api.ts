import type { ModelApi, ResolvedModel } from './agent-runtime.js';

/** How each model API is known: where it answers, how its models begin, and under what name programs expect its key. */
export const MODEL_APIS: Readonly<
  Record<ModelApi, { host: string; modelPrefixes: readonly string[]; keyVariable: string }>
> = {
  anthropic: {
    host: 'api.anthropic.com',
    modelPrefixes: ['claude-'],
    keyVariable: 'ANTHROPIC_API_KEY',
  },
  openai: {
    host: 'api.openai.com',
    modelPrefixes: ['gpt-', 'o1', 'o3', 'o4', 'codex-'],
    keyVariable: 'OPENAI_API_KEY',
  },
  google: {
    host: 'generativelanguage.googleapis.com',
    modelPrefixes: ['gemini-'],
    keyVariable: 'GEMINI_API_KEY',
  },
};

/** For a runtime that only speaks one API: any model is taken as it is. */
export function onlyApi(api: ModelApi): (model: string) => ResolvedModel {
  return (model) => ({ model, api });
}

/** An address that ends with the API's version, which some programs want and others add themselves. */
export function withVersion(url: string, version: string): string {
  return /\/v\d+(beta)?$/.test(url) ? url : `${url}/${version}`;
}

/** The same address without it. */
export function withoutVersion(url: string): string {
  return url.replace(/\/v\d+(beta)?$/, '');
}
