import { spawnSync } from 'node:child_process';
import { cpus, totalmem } from 'node:os';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { NODE, ROOT } from '../../scripts/lib/project.mjs';

const firstLine = (program, args) => {
  const { stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8' });
  return error ? undefined : `${stdout}${stderr}`.trim().split('\n')[0];
};

/** Describes the machine, for readers of the results. */
export function describeMachine(rounds) {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const versions = {
    service: version,
    commit: firstLine('git', ['-C', ROOT, 'rev-parse', '--short', 'HEAD']),
    node: firstLine(NODE, ['--version']),
    nginx: firstLine('nginx', ['-v'])?.replace(/^.*\//, ''),
    psql: firstLine('psql', ['--version']),
  };
  const all = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  const description =
    `${all.length} cores (${all[0]?.model.trim()}), ${memory} GiB, Node ${versions.node}` +
    (versions.nginx ? `, nginx ${versions.nginx}` : '');
  return { description, versions, rounds, date: new Date().toISOString().slice(0, 10) };
}
