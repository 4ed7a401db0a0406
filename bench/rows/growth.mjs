import { fileURLToPath } from 'node:url';
import { populate } from '../lib/populate.mjs';
import { startHelper } from '../lib/rpc.mjs';
import { startSourceService } from '../lib/subjects.mjs';

const LOAD = fileURLToPath(new URL('../lib/http-load.mjs', import.meta.url));

/** Every endpoint whose response does not grow with the data. Lists of everything do, and have their own row. */
const ENDPOINTS = ['getAgent', 'postAgent', 'getSession', 'getTurns', 'getVersions', 'stream'];

export const title = 'Ten times the sessions, agents and log rows';
export const metrics = Object.fromEntries(ENDPOINTS.map((name) => [name, `${name}, p50 ms`]));
export const goals = ENDPOINTS.map((metric) => ({
  label: `${metric} p50, 10 × the data / 1 ×`,
  metric,
  against: '1 ×',
  subject: '10 ×',
  atMost: 1.3,
}));

export async function open({ tiny }) {
  const scale = tiny ? 20 : 2_000;
  const seconds = tiny ? 0.2 : 1;
  const load = await startHelper(LOAD);
  const services = {};
  for (const [name, times] of [
    ['1 ×', 1],
    ['10 ×', 10],
  ]) {
    const service = await startSourceService();
    const session = await service.source(100, { free: true });
    await service.until(session, 'completed');
    const amount = scale * times;
    await populate(service.database, {
      sessions: amount,
      agents: amount,
      logEvents: amount * 10,
      agentId: service.agentId,
    });
    services[name] = { ...service, session };
  }
  const contenders = {};
  for (const [name, service] of Object.entries(services)) {
    const { port, session, agentId } = service;
    const headers = { authorization: service.authorization };
    const p50 = async (method, path, body) => {
      const json = body && JSON.stringify(body);
      const request = { port, headers, method, path, body: json, connections: 1, seconds };
      return (await load.call('run', request)).p50;
    };
    contenders[name] = async () => ({
      getAgent: await p50('GET', `/agents/${agentId}`),
      postAgent: await p50('POST', '/agents', {
        name: 'x',
        provider: 'shell',
        model: 'shell/bash',
      }),
      getSession: await p50('GET', `/sessions/${session}`),
      getTurns: await p50('GET', `/sessions/${session}/turns`),
      getVersions: await p50('GET', `/agents/${agentId}/versions`),
      stream: await p50('GET', `/sessions/${session}/stream?since=50`),
    });
  }
  const close = () => Promise.all([load, ...Object.values(services)].map((one) => one.stop()));
  return { contenders, close };
}
