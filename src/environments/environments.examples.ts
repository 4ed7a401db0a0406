/** Bodies to begin with, for the OpenAPI document. */
export const CREATE_ENVIRONMENT_EXAMPLES = {
  'Nothing but the defaults': {},
  'Packages, a secret and an allow-list': {
    name: 'Node with jq',
    packages: ['jq', 'npm:typescript@5.9.3', { manager: 'pip', name: 'requests' }],
    env_vars: { API_TOKEN: 'secret' },
    setup_script: "git config --global user.name 'Session Agent'",
    networking: {
      type: 'limited',
      allowed_hosts: ['api.example.com', '*.example.org'],
      allow_package_managers: true,
    },
  },
};

export const UPDATE_ENVIRONMENT_EXAMPLES = {
  'Other variables: the whole set is replaced': { version: 1, env_vars: { API_TOKEN: 'changed' } },
};
