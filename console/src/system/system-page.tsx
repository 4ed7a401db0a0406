import { Link } from 'wouter-preact';
import { useTitle } from '../lib/hooks.js';
import { QueueView } from './queue-view.js';
import { SandboxesView } from './sandboxes-view.js';
import { TokensView } from './tokens-view.js';
import { UsersView } from './users-view.js';
import { WorkersView } from './workers-view.js';

const VIEWS = {
  workers: ['Workers', WorkersView],
  queue: ['Queue', QueueView],
  sandboxes: ['Sandboxes', SandboxesView],
  users: ['Users', UsersView],
  tokens: ['Tokens', TokensView],
} as const;

const isView = (name: string | undefined): name is keyof typeof VIEWS =>
  name !== undefined && name in VIEWS;

/** What the service is doing for all users. Only operators get here, and only for them the service answers. */
export default function SystemPage({ view }: { view?: string }) {
  const current = isView(view) ? view : 'workers';
  const [title, View] = VIEWS[current];
  useTitle(`${title} · System`);
  return (
    <div class="columns list-only">
      <main id="main" class="list system">
        <div class="toolbar">
          <h1>System</h1>
        </div>
        <nav class="tabs" aria-label="Views of the system">
          {Object.entries(VIEWS).map(([name, [label]]) => (
            <Link
              key={name}
              href={`/system/${name}`}
              aria-current={name === current ? 'page' : undefined}
            >
              {label}
            </Link>
          ))}
        </nav>
        <View />
      </main>
    </div>
  );
}
