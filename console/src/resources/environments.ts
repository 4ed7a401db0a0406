import { api, body, type Schemas } from '../api/client.js';
import { changedIn, type Kind, linesOf, pairsOf } from './kind.js';

export type Environment = Schemas['Environment'];

const packageText = ({ manager, name, version }: Schemas['PackageSpec']): string =>
  `${manager}:${name}${version === undefined ? '' : `@${version}`}`;

const packagesText = ({ packages }: Environment): string => packages.map(packageText).join('\n');

const isLimited = ({ networking }: Readonly<Record<string, string>>): boolean =>
  networking === 'limited';

/** Environments, as their pages show and change them. */
export const ENVIRONMENTS: Kind<Environment> = {
  path: '/environments',
  plural: 'Environments',
  singular: 'environment',
  purpose: 'An environment is what a sandbox is made of: packages, variables and a setup script.',
  list: (query, signal) =>
    body(api.GET('/environments', { ...(signal && { signal }), params: { query } })),
  read: (id, signal) =>
    body(api.GET('/environments/{id}', { ...(signal && { signal }), params: { path: { id } } })),
  versions: (id, limit, signal) =>
    body(
      api.GET('/environments/{id}/versions', {
        signal,
        params: { path: { id }, query: { limit } },
      }),
    ),
  create: (members) => body(api.POST('/environments', { body: members })),
  update: (id, members) =>
    body(
      api.PUT('/environments/{id}', {
        params: { path: { id } },
        body: members as Schemas['UpdateEnvironmentRequest'],
      }),
    ),
  actions: [
    {
      label: 'Archive',
      title: 'Archive this environment?',
      text: 'It gets no new sessions and cannot be changed any more. Sessions that use it go on.',
      removes: false,
      refusal: ({ archived_at: at }) => (at === null ? undefined : 'The environment is archived'),
      run: (id) => body(api.POST('/environments/{id}/archive', { params: { path: { id } } })),
    },
    {
      label: 'Delete',
      title: 'Delete this environment?',
      text: 'All its versions and the values of its variables are deleted for good.',
      removes: true,
      refusal: () => undefined,
      run: (id) => body(api.DELETE('/environments/{id}/delete', { params: { path: { id } } })),
    },
  ],
  summary: ({ packages, networking }) =>
    [
      packages.length === 1 ? '1 package' : `${packages.length} packages`,
      networking.type === 'limited' ? 'limited network' : '',
    ]
      .filter(Boolean)
      .join(' · '),
  fields: () => [
    { name: 'name', label: 'Name', control: 'text' },
    {
      name: 'packages',
      label: 'Packages',
      control: 'area',
      rows: 4,
      hint: 'One a line, such as apt:jq or npm:typescript@5.9.3',
    },
    { name: 'setup_script', label: 'Setup script', control: 'area', rows: 6 },
    {
      name: 'networking',
      label: 'Network',
      control: 'select',
      options: [
        ['unrestricted', 'Unrestricted'],
        ['limited', 'Only allowed hosts'],
      ],
    },
    {
      name: 'allowed_hosts',
      label: 'Allowed hosts',
      control: 'area',
      rows: 3,
      hint: 'One a line, such as api.example.com or *.example.org',
      when: isLimited,
    },
    {
      name: 'allow_package_managers',
      label: 'Allow the registries of package managers',
      control: 'box',
      when: isLimited,
    },
    {
      name: 'allow_mcp_servers',
      label: 'Allow the agent’s tool servers',
      control: 'box',
      when: isLimited,
    },
    {
      name: 'replace_variables',
      label: 'Replace all variables',
      control: 'box',
      when: ({ has_variables: has }) => has === 'true',
    },
    {
      name: 'env_vars',
      label: 'Variables',
      control: 'area',
      rows: 3,
      hint: 'One a line: NAME=value. Values are never shown again.',
      when: ({ has_variables: has, replace_variables: replace }) =>
        has !== 'true' || replace === 'true',
    },
  ],
  textsOf: (environment) => {
    const limited = environment?.networking.type === 'limited' ? environment.networking : undefined;
    return {
      name: environment?.name ?? '',
      packages: environment ? packagesText(environment) : '',
      setup_script: environment?.setup_script ?? '',
      networking: environment?.networking.type ?? 'unrestricted',
      allowed_hosts: limited?.allowed_hosts.join('\n') ?? '',
      allow_package_managers: limited?.allow_package_managers ? 'true' : '',
      allow_mcp_servers: limited?.allow_mcp_servers ? 'true' : '',
      has_variables: environment && environment.env_var_keys.length > 0 ? 'true' : '',
      replace_variables: '',
      env_vars: '',
    };
  },
  bodyOf: (texts, before) => {
    const changed = (...names: string[]): boolean => changedIn(texts, before, ...names);
    const network = ['allowed_hosts', 'allow_package_managers', 'allow_mcp_servers'];
    return {
      ...(changed('name') && { name: texts['name'] === '' ? null : texts['name'] }),
      ...(changed('packages') && { packages: linesOf(texts['packages']) }),
      ...(changed('setup_script') && { setup_script: texts['setup_script'] }),
      ...((changed('networking') || (isLimited(texts) && changed(...network))) && {
        networking: isLimited(texts)
          ? {
              type: 'limited',
              allowed_hosts: linesOf(texts['allowed_hosts']),
              allow_package_managers: texts['allow_package_managers'] === 'true',
              allow_mcp_servers: texts['allow_mcp_servers'] === 'true',
            }
          : { type: 'unrestricted' },
      }),
      ...((texts['replace_variables'] === 'true' || (texts['env_vars'] ?? '') !== '') && {
        env_vars: pairsOf(texts['env_vars'] ?? '', 'Variables'),
      }),
    };
  },
  membersOf: (environment) => {
    const { networking } = environment;
    return {
      name: environment.name ?? '',
      packages: packagesText(environment),
      variables: environment.env_var_keys.join('\n'),
      'setup script': environment.setup_script,
      network:
        networking.type === 'unrestricted'
          ? 'unrestricted'
          : [
              'limited',
              ...networking.allowed_hosts,
              ...(networking.allow_package_managers ? ['package managers'] : []),
              ...(networking.allow_mcp_servers ? ['tool servers'] : []),
            ].join('\n'),
    };
  },
};
