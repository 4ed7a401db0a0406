import { startService } from '../lib/service.mjs';
import { timeSession } from '../lib/sessions.mjs';
import { median } from '../lib/statistics.mjs';

export const title =
  'POST /sessions to the first output of `echo hi`, in an environment that is built';
export const metrics = { ms: 'ms, median' };
export const goals = [
  { label: 'first output, later sessions of an environment, ms', metric: 'ms', atMost: 60 },
  {
    label: 'first output, with an environment / without one',
    metric: 'ms',
    against: 'no environment',
    atMost: 1.5,
  },
];

/** Files in many folders, as packages have them: what a session must not copy. */
const SETUP = `for folder in $(seq 1 200); do
  mkdir -p ~/packages/$folder && for file in $(seq 1 20); do echo "$file" >~/packages/$folder/$file; done
done`;

export async function open({ tiny, profile }) {
  const times = tiny ? 2 : 15;
  const service = await startService({ profile });
  const environment = { name: 'bench', setup_script: SETUP };
  const { id: environment_id } = await service.post('/environments', environment);
  const medianOf = async (members) => {
    const all = [];
    for (let at = 0; at < times; at += 1) all.push(await timeSession(service, members));
    return { ms: median(all) };
  };
  // The first one builds it.
  await timeSession(service, { environment_id });
  await timeSession(service);
  const contenders = {
    service: () => medianOf({ environment_id }),
    'no environment': () => medianOf({}),
  };
  return { contenders, close: () => service.stop() };
}
