const AGENT_ID = '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10';

/** Bodies to begin with, for the OpenAPI document. */
export const CREATE_SESSION_EXAMPLES = {
  'A prompt': { agent_id: AGENT_ID, prompt: 'echo hello' },
  'A repository, and another environment than the agent has': {
    agent_id: AGENT_ID,
    prompt: 'Fix the failing test.',
    timeout: 1800,
    environment_id: '5b2a8a35-0e0f-4b6f-8a3c-6a9d4c1de0a7',
    resources: [
      {
        type: 'git_repository',
        url: 'https://git.example.com/team/app.git',
        authorization_token: 'secret',
        checkout: { type: 'branch', name: 'main' },
      },
    ],
  },
};

export const PROMPT_SESSION_EXAMPLES = {
  'The next turn': { prompt: 'echo and hello again' },
};
