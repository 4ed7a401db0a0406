import * as bareNode from './bare-node.mjs';
import * as nchan from './nchan.mjs';

const ALL = { nchan, 'bare-node': bareNode };

/** Starts those of the servers that are there; says which are not, once each. */
export async function available(names, say) {
  const started = {};
  for (const name of names) {
    if (!ALL[name]) continue;
    const reason = await ALL[name].missing();
    if (reason === undefined) started[name] = await ALL[name].start();
    else say(`  without ${name}: ${reason}`);
  }
  return started;
}
