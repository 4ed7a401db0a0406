import { expect, it } from '@jest/globals';
import { networkRules } from './network-rules.js';

const DENY_REST = { domain: '*', action: 'deny' };

it.each([
  ['unrestricted', ['a.example'], undefined, [{ domain: '*', action: 'allow' }]],
  // No rules at all would mean an open network.
  ['limited', [], undefined, [DENY_REST]],
  ['limited', [], 'g.example', [{ domain: 'g.example', action: 'allow' }, DENY_REST]],
  [
    'limited',
    ['*.a.example', 'g.example', '*.a.example'],
    'g.example',
    [
      { domain: '*.a.example', action: 'allow' },
      { domain: 'g.example', action: 'allow' },
      DENY_REST,
    ],
  ],
] as const)('turns %s %j with the gateway %s into rules', (mode, allowedHosts, gateway, rules) => {
  expect(networkRules({ mode, allowedHosts }, gateway)).toEqual(rules);
});
