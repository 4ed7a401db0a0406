import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type GitServer, startGitServer } from '../support/git-server.js';
import { watchProcesses } from '../support/leaks.js';
import { describeWith } from '../support/requirements.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';
import type { Service } from '../support/service.js';
import { type Ended, ROOT } from './support/program.js';

const GIT_TOKEN = 'git-token-of-the-job';
const JOB = join(ROOT, 'examples', 'ci-job', 'run-agent.sh');
const NOBODY = '00000000-0000-4000-8000-000000000000';

describeWith(
  ['bubblewrap', 'git http-backend', 'curl', 'python3'],
  'the example of a CI job',
  () => {
    let git: GitServer;
    let service: Service;
    let sessions: SessionsOf;
    let agentId: string;
    beforeAll(async () => {
      git = await startGitServer(GIT_TOKEN);
      // Sandboxes reach no loopback address of the host but a gateway's.
      service = await startSessionService({ OPENAI_BASE_URL: git.url });
      sessions = new SessionsOf(service, service);
      agentId = await sessions.createAgent();
    });
    afterAll(async () => {
      await leaveNothing(service, [sessions]);
      await service.stop();
      await git.stop();
    });

    interface Job {
      prompt: string;
      args?: string[];
      env?: Record<string, string>;
      /** Cancels the job as soon as it has written this. */
      cancelAt?: string;
    }

    function run({ prompt, args = [], env = {}, cancelAt }: Job): Promise<Ended> {
      const child = spawn(JOB, [`${git.url}/private.git`, ...args], {
        cwd: ROOT,
        env: {
          ...process.env,
          ...{ BASE_URL: service.url, ACCESS_TOKEN: service.token, AGENT_ID: agentId, GIT_TOKEN },
          ...env,
        },
      });
      let stdout = '';
      let stderr = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        stdout += text;
        if (cancelAt !== undefined && stdout.includes(cancelAt)) child.kill('SIGTERM');
      });
      child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
      child.stdin.end(prompt);
      return new Promise((resolve, reject) => {
        child.once('error', reject);
        child.once('close', (code) => resolve({ code, stdout, stderr }));
      });
    }

    const statusOf = async ({ stderr }: Ended): Promise<string> => {
      const id = /^Session (\S+)$/m.exec(stderr)?.[1] ?? '';
      return (await sessions.get(id)).status;
    };

    test('shows what the agent prints on the repository, and exits as it does', async () => {
      const job = await run({
        prompt: 'cat private/FEATURE; echo; echo oh no >&2; exit 7',
        args: ['feature'],
      });
      expect(job).toMatchObject({ code: 7, stdout: 'branch\n' });
      expect(job.stderr).toMatch(/^Session \S+\noh no\n$/);
    });

    test('shows its tokens to nobody who looks at processes', async () => {
      const processes = watchProcesses();
      const ended = await run({ prompt: 'sleep 0.5', env: { JOB_ID: 'job-1' } }).catch(
        () => undefined,
      );
      const commands = await processes.stop();
      expect(ended?.code).toBe(0);
      expect(commands).toContain('Idempotency-Key: job-1');
      for (const secret of [service.token, GIT_TOKEN]) expect(commands).not.toContain(secret);
    });

    test('frees its sandbox when it has passed', async () => {
      const job = await run({ prompt: 'cat private/README' });
      expect(job).toMatchObject({ code: 0, stdout: 'second' });
      expect(await statusOf(job)).toBe('terminated');
    });

    test('ends the session when it is cancelled', async () => {
      const job = await run({ prompt: 'echo working; sleep 60', cancelAt: 'working' });
      expect(job.code).toBe(143);
      expect(await statusOf(job)).toBe('terminated');
    });

    test('says why it was not accepted', async () => {
      const job = await run({ prompt: 'true', env: { AGENT_ID: NOBODY } });
      expect(job.code).toBe(1);
      expect(job.stderr).toContain('Not accepted: {"detail":"Agent not found"}');
    });
  },
);
