import * as bare from './bare-node.mjs';
import * as nchan from './nchan.mjs';
import * as opencode from './opencode.mjs';
import * as sandboxAgent from './sandbox-agent.mjs';

const ALL = {
  nchan: { missing: nchan.missing, start: nchan.start },
  'bare-node': { missing: bare.missing, start: bare.start },
  'sandbox-agent': { missing: sandboxAgent.missing, start: sandboxAgent.start },
  opencode: { missing: opencode.missing, start: opencode.start },
};

/** Starts the servers that are installed, and reports each missing one once. */
export async function available(names, say) {
  const started = {};
  for (const name of names) {
    const reason = ALL[name].missing();
    if (reason === undefined) started[name] = await ALL[name].start();
    else say(`  without ${name}: ${reason}`);
  }
  return started;
}
