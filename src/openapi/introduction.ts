/** What a reader should know before the first operation. Markdown. */
export const DESCRIPTION = `
Runs AI coding agents on demand inside isolated sandboxes and streams their output.

* An **agent** is a template: provider, model, system prompt, skills, tool servers.
* An **environment** says what a sandbox is made of: packages, variables, a setup script, a network policy.
* A **session** is one execution of an agent in a sandbox. Creating one is asynchronous: it answers 202, and the output
  comes as Server-Sent Events. A completed session takes further prompts in the same sandbox.

**Access.** Every request carries \`Authorization: Bearer <token>\`. Resources belong to the token's user; what belongs to
another user is answered with 404, as if it were not there.

**Values.** Ids are lower-case UUIDs that the server assigns; anything else in their place is a 404. Timestamps are ISO
8601 in UTC with microseconds. Members of a body that are not known are ignored. Secrets (\`env_vars\`, \`env\` and \`headers\`
of tool servers, \`authorization_token\`) can be written and never read. Text must not hold U+0000 or unpaired surrogates.

**Errors.** The body of every error is JSON with \`detail\`: a sentence, or for fields of a body that are missing or of the
wrong type a list (422). Besides the answers that each operation lists, a path that there is not is a 404, a method that a
path does not have a 405 with \`Allow\`, a URL or request that is malformed a 400, headers that are too large a 431.

**Lists** hold everything, newest first: there are no pages.

**Versions.** Agents and environments have a \`version\`, which a \`PUT\` must name. If somebody else was faster, it is a
409: read the resource again and retry. There is no version in paths; members and event types may be added, so ignore
what you do not know.
`.trim();

/** Tag → description, in the order in which they are shown. */
export const TAGS = {
  agents: 'Templates for sessions, with a history of versions.',
  environments: 'What sandboxes are made of, with a history of versions.',
  sessions: 'Executions of agents: create, watch, continue, terminate.',
  operations: 'For load balancers, orchestrators and generators of clients. Open without a token.',
};
