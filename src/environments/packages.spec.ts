import { describe, expect, it } from '@jest/globals';
import { packagesProblems, readPackages } from './packages.js';

describe('packages', () => {
  it.each<[string, object]>([
    ['jq', { manager: 'apt', name: 'jq' }],
    ['jq@1.7', { manager: 'apt', name: 'jq', version: '1.7' }],
    ['apt:libc6@2.36-9+deb12u10', { manager: 'apt', name: 'libc6', version: '2.36-9+deb12u10' }],
    ['apt:vim@2:9.0.1378-2', { manager: 'apt', name: 'vim', version: '2:9.0.1378-2' }],
    ['npm:typescript@5.9.3', { manager: 'npm', name: 'typescript', version: '5.9.3' }],
    ['npm:@scope/tool', { manager: 'npm', name: '@scope/tool' }],
    ['npm:@scope/tool@^1', { manager: 'npm', name: '@scope/tool', version: '^1' }],
    ['pip:requests[socks]@2.32.3', { manager: 'pip', name: 'requests[socks]', version: '2.32.3' }],
    [
      'go:golang.org/x/tools/gopls@latest',
      { manager: 'go', name: 'golang.org/x/tools/gopls', version: 'latest' },
    ],
    ['cargo:ripgrep', { manager: 'cargo', name: 'ripgrep' }],
    ['gem:rake', { manager: 'gem', name: 'rake' }],
  ])('reads the short form %s', (text, expected) => {
    expect(packagesProblems([text])).toEqual([]);
    expect(readPackages([text])).toEqual([expected]);
    expect(packagesProblems([expected])).toEqual([]);
  });

  it.each([
    '',
    ' ',
    'jq ',
    'a b',
    '-y',
    '--help',
    'apt:-y',
    'brew:jq',
    'npm:',
    ':jq',
    'jq@',
    'jq@ 1',
    'jq@-o',
    'jq;id',
    '$(id)',
    '`id`',
    'a&b',
    'a|b',
    'a\nb',
    '../x',
    'go:x/../../y',
    '/etc/passwd',
    'pip:requests==2',
    'x'.repeat(300),
  ])('refuses %j', (text) => {
    expect(packagesProblems([text])).toEqual([
      { type: 'package', loc: [0], msg: expect.any(String) },
    ]);
  });

  it.each([
    ['apt', ['1.7', '2.36-9+deb12u10', '2:9.0.1378-2', '1.7*'], ['>=1', '^1', 'latest', '1,2']],
    [
      'pip',
      ['2.32.3', '>=1.2,<2', '==1.2.*', '1.2.*', '~=1.4', '!=2.0', '===1.0', '1.0rc1', '1!2.0'],
      ['^1', '~1', '=1.2', 'latest', '1.2,<2', '>=', '>=1,', '*', '~>1'],
    ],
    [
      'npm',
      ['5.9.3', '^5', '~5.1', '>=5', '5.x', '*', 'latest', 'next-7', '=1.0.0'],
      ['>=1,<2', '!=1', '~=1'],
    ],
    [
      'cargo',
      ['14.1.0', '^14', '~14.1', '>=14,<15', '=1.2.3', '1.0.0-rc.1'],
      ['14', 'latest', '!=1', '~>1', '*'],
    ],
    [
      'gem',
      ['13.2.1', '~>13.0', '>=13,<14', '!=13.1', '1.0.0.pre'],
      ['^1', '==1', '~1', 'latest', '*', '~=1'],
    ],
    [
      'go',
      ['v1.2.3', '1.2.3', 'latest', '>=v1.2', 'main', '0123abc'],
      ['^1', '>=1,<2', '!=1', '*', '=1'],
    ],
  ])('have the versions that %s can express', (manager, taken, refused) => {
    const problemsOf = (version: string) => packagesProblems([{ manager, name: 'x', version }]);
    for (const version of taken) expect([version, problemsOf(version)]).toEqual([version, []]);
    for (const version of refused) {
      expect([version, problemsOf(version)]).toEqual([
        version,
        [
          {
            type: expect.stringMatching(/^(package_version|string_pattern_mismatch)$/),
            loc: [0, 'version'],
            msg: expect.any(String),
          },
        ],
      ]);
    }
  });

  it('say in the short form what is wrong with a version', () => {
    expect(packagesProblems(['pip:x@^1'])).toEqual([
      { type: 'package', loc: [0], msg: expect.stringContaining('pip takes') },
    ]);
  });
});
