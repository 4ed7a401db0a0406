import { useMemo } from 'preact/hooks';
import { type Agent, api, body } from '../api/client.js';
import { useLoaded } from './hooks.js';

const archived = new Map<string, Promise<Agent>>();

/** The user's agents by id. Archived ones are looked up one by one, because lists do not have them. */
export function useAgents(): {
  list: readonly Agent[];
  /** Whether the list is there. */
  loaded: boolean;
  nameOf: (id: string) => string;
} {
  const { data } = useLoaded(
    'agents',
    async (signal) => (await body(api.GET('/agents', { signal }))).data,
    30_000,
  );
  const list = data ?? EMPTY;
  const names = useMemo(() => new Map(list.map(({ id, name }) => [id, name])), [list]);
  return { list, loaded: data !== undefined, nameOf: (id) => names.get(id) ?? '' };
}

const EMPTY: readonly Agent[] = [];

/** Reads the agent again when it is needed next. */
export const forgetAgent = (id: string): void => void archived.delete(id);

/** An agent, archived or not. */
export function readAgent(id: string): Promise<Agent> {
  let agent = archived.get(id);
  if (!agent) {
    agent = body(api.GET('/agents/{id}', { params: { path: { id } } }));
    archived.set(id, agent);
    agent.catch(() => archived.delete(id));
  }
  return agent;
}
