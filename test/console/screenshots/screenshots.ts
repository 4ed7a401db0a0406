import { mkdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { BrowserContextOptions } from 'playwright-core';
import { startGitSessions, type GitSessions } from '../../support/git-sessions.js';
import { query, type TestUser } from '../../support/service.js';
import { SessionsOf } from '../../support/sessions.js';
import { openBrowser, signIn } from '../support/console-page.js';

const FOLDER = join('docs', 'images');
/** Readers of the repository download them all. */
const MOST_BYTES = 150_000;
const LARGE = { width: 1280, height: 760 };
/** For pages that are full of text. */
const MEDIUM = { width: 1000, height: 600 };
const SMALL = { width: 390, height: 760 };

const REPORT = `
for step in 'Checking out' 'Installing' 'Linting' 'Testing'; do
  printf '\\033[1m%s\\033[0m … \\033[32mok\\033[0m\\n' "$step"
done
printf '\\033[31m1 of 214 tests failed:\\033[0m greets people by their name\\n'`;
const CHANGE = `
cd app
printf '# Greeter\\n\\nSays hello to people, in their language.\\n' >README
mkdir -p src
cat >src/greet.ts <<'CODE'
const WORDS = { en: 'Hello', de: 'Hallo', fr: 'Bonjour' } as const;

export function greet(name: string, language: keyof typeof WORDS = 'en'): string {
  return WORDS[language] + ", " + name + "!";
}
CODE
echo done`;

interface Shot {
  /** Who looks; default: the user of the sessions. */
  as?: TestUser;
  name: string;
  address: string;
  options: BrowserContextOptions;
  /** A text that is on the page when it is ready. */
  ready: string;
}

/** How many turns run at a time. */
const SLOTS = 4;

const on = await startGitSessions({ WORKER_CONCURRENCY: String(SLOTS) });
const browser = await openBrowser();
const crowd: SessionsOf[] = [];
try {
  await mkdir(FOLDER, { recursive: true });
  for (const shot of await prepare(on)) await take(shot);
} finally {
  await browser.close();
  for (const sessions of crowd) await sessions.clear();
  await on.stop();
}

/** Real sessions of a user with agents that have names, and which pages to show of them. */
async function prepare({ service, sessions, git }: GitSessions): Promise<Shot[]> {
  const { databaseUrl, http } = service;
  await query(databaseUrl, `UPDATE users SET name = 'alice' WHERE id = $1`, [service.userId]);
  const checker = await sessions.createAgent({ name: 'Nightly checks' });
  const failed = await sessions.create(`${REPORT}; exit 1`, { agent_id: checker });
  await sessions.reach(failed, 'failed');
  const checked = await sessions.create('echo All 214 tests passed', { agent_id: checker });
  await sessions.reach(checked, 'completed');

  const developer = await sessions.createAgent({
    name: 'Developer',
    system: 'echo You change code in small steps.\necho You run the tests.',
  });
  await http.put(`/agents/${developer}`, {
    version: 1,
    name: 'Senior developer',
    system: 'echo You change code in small steps.\necho You run the tests before you say done.',
  });
  const changed = await sessions.create(CHANGE, {
    agent_id: developer,
    resources: [{ type: 'git_repository', url: `${git.url}/public.git`, mount_path: 'app' }],
  });
  await sessions.reach(changed, 'completed');

  // What Claude Code really printed, see fixtures/.
  const reviewer = await sessions.createAgent({ name: 'Reviewer' });
  const lines = await readFile(join('test', 'console', 'fixtures', 'anthropic.jsonl'), 'utf8');
  const reviewed = await sessions.create(`cat <<'LINES'\n${lines}\nLINES`, {
    agent_id: reviewer,
  });
  await sessions.reach(reviewed, 'completed');
  await query(databaseUrl, `UPDATE sessions SET provider = 'anthropic' WHERE id = $1`, [reviewed]);
  const running = await sessions.create('echo Watching the queue; sleep 600', {
    agent_id: checker,
  });
  await sessions.reach(running, 'running');

  const operator = await service.createUser();
  await query(databaseUrl, `UPDATE users SET name = 'olga', operator = true WHERE id = $1`, [
    operator.userId,
  ]);
  // Of other users, so that they are not among the sessions of the first one; and more than run at a time.
  for (const name of ['bob', 'carol']) {
    const user = await service.createUser();
    await query(databaseUrl, 'UPDATE users SET name = $2 WHERE id = $1', [user.userId, name]);
    const others = new SessionsOf(service, user);
    crowd.push(others);
    for (let more = SLOTS - 1; more > 0; more -= 1) await others.create('sleep 600');
  }

  const light: BrowserContextOptions = { colorScheme: 'light', viewport: LARGE };
  const dark: BrowserContextOptions = { colorScheme: 'dark', viewport: LARGE };
  return [
    { name: 'sessions', address: '/', options: light, ready: 'Exit code 1' },
    {
      name: 'transcript',
      address: `/sessions/${reviewed}`,
      options: { colorScheme: 'light', viewport: MEDIUM },
      ready: 'The turn is done',
    },
    {
      name: 'terminal-dark',
      address: `/sessions/${failed}`,
      options: dark,
      ready: 'tests failed',
    },
    {
      name: 'changes',
      address: `/sessions/${changed}?view=changes`,
      options: light,
      ready: 'export function greet',
    },
    {
      name: 'versions-dark',
      address: `/agents/${developer}?view=versions`,
      options: dark,
      ready: 'before you say done',
    },
    {
      as: operator,
      name: 'system-users',
      address: '/system/users',
      options: { colorScheme: 'light', viewport: MEDIUM },
      ready: 'Issue a token',
    },
    {
      as: operator,
      name: 'system-sandboxes-dark',
      address: '/system/sandboxes',
      options: { colorScheme: 'dark', viewport: MEDIUM },
      ready: 'Destroy',
    },
    {
      as: operator,
      name: 'system-queue-narrow',
      address: '/system/queue',
      options: { colorScheme: 'light', viewport: SMALL },
      ready: 'Waiting for',
    },
    {
      name: 'transcript-narrow',
      address: `/sessions/${reviewed}`,
      options: { colorScheme: 'light', viewport: SMALL },
      ready: 'The turn is done',
    },
  ];
}

async function take({ as = on.service, name, address, options, ready }: Shot): Promise<void> {
  const { page, faults, open, close } = await signIn(
    browser,
    { url: on.service.url, token: as.token },
    options,
  );
  await open(address);
  await page.getByText(ready).first().waitFor();
  const path = join(FOLDER, `console-${name}.png`);
  await page.screenshot({ path, animations: 'disabled' });
  await close();
  if (faults.length > 0) throw new Error(`${address}: ${faults.join('; ')}`);
  const { size } = await stat(path);
  if (size > MOST_BYTES) throw new Error(`${path} has ${size} bytes; at most ${MOST_BYTES}`);
}
