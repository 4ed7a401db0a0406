import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { NpmRegistry } from '../integration/programs/npm-registry.js';
import { HTTP_SECRET, mcpRoutes } from '../runtimes/support/mcp-servers.js';
import { CompanyNetwork } from '../support/company-network.js';
import { startGitServer, type GitServer } from '../support/git-server.js';
import { describeWith, testWith } from '../support/requirements.js';
import type { Service, ServiceOptions } from '../support/service.js';
import {
  eventually,
  leaveNothing,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';

const TOKEN = 'company-t0ken-0123456789';
const PASSWORD = 'proxy-passw0rd/0123456789';
const NAMES = ['git', 'nexus', 'tools', 'neighbour', 'moving', 'app.svc', 'own.svc'].map(
  (name) => `${name}.corp.example`,
);
/** A private address that is not one of this machine's. */
const ELSEWHERE = '10.255.77.7';

/** Asks the tool server for its tool through the gateway, and without it, as programs in the sandbox do. */
const CALL = `call() { curl -sS -m 20 -H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"'"$1"'"}}}' "\${@:2}"; echo; }`;

describeWith(
  ['root', 'mount namespaces', 'sandboxes on this host', 'git http-backend', 'curl'],
  "a company's network",
  () => {
    let company: CompanyNetwork;
    let git: GitServer;
    let registry: NpmRegistry;
    let tools: Server;
    let ports: Record<'git' | 'nexus' | 'tools' | 'neighbour', number>;
    /** How often the server was reached that no name may reach. */
    let neighbours = 0;
    let onLoopback = 0;

    beforeAll(async () => {
      company = await CompanyNetwork.start(NAMES);
      git = await startGitServer(TOKEN);
      const routes = mcpRoutes();
      tools = createServer((request, response) => {
        if (!routes(request, response)) response.writeHead(404).end();
      });
      await once(tools.listen(0, '127.0.0.1'), 'listening');
      // The registry names its own address in what it answers.
      const front = { url: '' };
      registry = await new NpmRegistry('juggling', 'echo three balls\n', () => front.url).start();
      const neighbour = await company.serve((_request, response) => {
        neighbours += 1;
        response.end('neighbour');
      });
      await company.serve(
        (_request, response) => {
          onLoopback += 1;
          response.end();
        },
        '127.0.0.1',
        neighbour,
      );
      ports = {
        git: await company.publish(Number(new URL(git.url).port)),
        nexus: await company.publish(Number(new URL(registry.url).port)),
        tools: await company.publish((tools.address() as AddressInfo).port),
        neighbour,
      };
      front.url = `https://nexus.corp.example:${ports.nexus}/`;
      for (const name of NAMES) company.addresses.set(name, [company.address]);
      company.addresses.set('app.svc.corp.example', [ELSEWHERE]);
      company.routes.set(ELSEWHERE, company.address);
    });
    afterAll(async () => {
      await registry.stop();
      await git.stop();
      tools.closeAllConnections();
      await new Promise((closed) => tools.close(closed));
      await company.stop();
    });

    const start = (
      env: Record<string, string | undefined> = {},
      options: Pick<ServiceOptions, 'dataDir'> = {},
    ): Promise<Service> =>
      startSessionService(
        {
          EGRESS_PRIVATE_HOSTS: [
            `git.corp.example:${ports.git}`,
            `nexus.corp.example:${ports.nexus}`,
            `tools.corp.example:${ports.tools}`,
            `moving.corp.example:${ports.neighbour}`,
            `*.svc.corp.example:${ports.neighbour}`,
          ].join(),
          SANDBOX_CA_FILE: company.authority,
          ...env,
        },
        { through: company.through, ...options },
      );

    /** A proxy, as the service is told to use it. */
    async function proxyWith(password: string, scheme: 'http' | 'https' = 'http'): Promise<URL> {
      const proxy = await company.startProxy(scheme, PASSWORD);
      return Object.assign(proxy, { username: 'user', password });
    }

    /** Runs a test with a service of its own. */
    async function withService(
      started: Promise<Service>,
      body: (sessions: SessionsOf, service: Service) => Promise<void>,
    ): Promise<void> {
      const service = await started;
      const sessions = new SessionsOf(service, service);
      try {
        await body(sessions, service);
        await leaveNothing(service, [sessions]);
      } finally {
        await service.stop();
      }
    }

    const at = (name: 'git' | 'nexus' | 'tools'): string =>
      `https://${name}.corp.example:${ports[name]}`;

    /** Everything that developers do there; each line of output is one success. */
    const work = (branch: string): string => `
set -euo pipefail
cat private/README; echo
cd private
git -c user.name=T -c user.email=t@example.com commit -q --allow-empty -m work
git push -q origin HEAD:refs/heads/${branch}
git ls-remote origin ${branch} | cut -f2
cd ..
git clone -q ${at('git')}/public.git
cat public/README; echo
npm install --silent --ignore-scripts --registry ${at('nexus')}/ juggling >/dev/null
sh node_modules/juggling/program.sh
${CALL}
call gateway -H "x-session-grant: $SESSION_GRANT_MCP_0" http://127.0.0.1/mcp/0 | grep -o 'echo.*characters'
call directly -H 'authorization: Bearer ${HTTP_SECRET}' ${at('tools')}/mcp | grep -o 'echo.*characters'
python3 -c 'import urllib.request as u; print(u.urlopen("${at('git')}/public.git/info/refs?service=git-upload-pack").status)'
node -e 'fetch("${at('nexus')}/juggling").then((r) => console.log(r.status))'
openssl s_client -verify_return_error -brief -connect git.corp.example:${ports.git} </dev/null 2>&1 | grep -o 'Verification: OK'
`;
    const RESULT = (branch: string): string =>
      [
        'second',
        `refs/heads/${branch}`,
        'second',
        'three balls',
        `echo gateway with a secret of ${HTTP_SECRET.length} characters`,
        `echo directly with a secret of ${HTTP_SECRET.length} characters`,
        '200',
        '200',
        'Verification: OK',
        '',
      ].join('\n');

    const repository = () => ({
      type: 'git_repository',
      url: `${at('git')}/private.git`,
      authorization_token: TOKEN,
    });
    const agentWithTools = (sessions: SessionsOf): Promise<string> =>
      sessions.createAgent({
        mcp_servers: [
          {
            type: 'http',
            name: 'tools',
            url: `${at('tools')}/mcp`,
            headers: { authorization: `Bearer ${HTTP_SECRET}` },
          },
        ],
      });
    const LIMITED = {
      networking: {
        type: 'limited',
        allow_mcp_servers: true,
        allowed_hosts: ['nexus.corp.example', 'tools.corp.example'],
      },
    };
    /** Says for each address whether it can be reached. */
    const knock = (...urls: string[]): string =>
      urls
        .map((url) => `curl -skf -m 8 ${url} >/dev/null && echo reached || echo closed`)
        .join('\n');

    describe.each(['no', 'an http', 'an https'] as const)('behind %s proxy', (kind) => {
      let service: Service;
      let sessions: SessionsOf;
      beforeAll(async () => {
        if (kind === 'no') {
          service = await start();
        } else {
          const proxy = await proxyWith(PASSWORD, kind === 'an http' ? 'http' : 'https');
          service = await start({ EGRESS_PROXY: proxy.href });
        }
        sessions = new SessionsOf(service, service);
      });
      afterAll(async () => {
        await leaveNothing(service, [sessions]);
        await service.stop();
      });

      it.each(['unrestricted', 'limited'] as const)(
        'clones, pushes, installs and calls tools in a session with the network %s',
        async (network) => {
          company.proxied.length = 0;
          const branch = `${network}-${kind.replace(' ', '-')}`;
          const stream = await sessions.run(work(branch), {
            agent_id: await agentWithTools(sessions),
            resources: [repository()],
            ...(network === 'limited' && {
              environment_id: await sessions.createEnvironment(LIMITED),
            }),
          });
          expect(stream.output()).toBe(RESULT(branch));
          expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
          expect(stream.frames.join('\n') + service.logs()).not.toContain(PASSWORD);
          const wanted = (['git', 'nexus', 'tools'] as const).map(
            (name) => `${company.address}:${ports[name]}`,
          );
          expect(new Set(company.proxied)).toEqual(new Set(kind === 'no' ? [] : wanted));
        },
      );

      it('reaches nothing else at private addresses', async () => {
        neighbours = 0;
        const { port } = new URL(git.url);
        const stream = await sessions.run(
          knock(
            // Not listed, listed at another port, a name of this machine below a pattern, an address.
            `https://neighbour.corp.example:${ports.neighbour}`,
            `https://git.corp.example:${ports.neighbour}`,
            `https://own.svc.corp.example:${ports.neighbour}`,
            `https://${company.address}:${ports.neighbour}`,
            `https://127.0.0.1:${port}`,
          ),
        );
        expect(stream.output()).toBe('closed\n'.repeat(5));
        expect(neighbours).toBe(0);
      });

      it('reaches of listed names only those that the policy allows', async () => {
        const environment_id = await sessions.createEnvironment({
          networking: { type: 'limited', allowed_hosts: ['nexus.corp.example'] },
        });
        const stream = await sessions.run(
          knock(`${at('git')}/public.git/HEAD`, `${at('nexus')}/juggling`),
          { environment_id },
        );
        expect(stream.output()).toBe('closed\nreached\n');
      });

      it('connects only to those addresses of a moving name that it may have', async () => {
        neighbours = onLoopback = 0;
        company.addresses.set('moving.corp.example', [
          company.address,
          '127.0.0.1',
          '169.254.169.254',
        ]);
        const url = `https://moving.corp.example:${ports.neighbour}`;
        const stream = await sessions.run(knock(...Array.from({ length: 12 }, () => url)));
        const lines = stream.output().trim().split('\n');
        expect(new Set(lines)).toEqual(new Set(['reached', 'closed']));
        expect(lines).toHaveLength(12);
        expect(neighbours).toBe(lines.filter((line) => line === 'reached').length);
        expect(onLoopback).toBe(0);
      });
    });

    testWith(
      ['sandboxes with software'],
      'is there for setup scripts, on a system of their own',
      async () => {
        await prepareSoftware();
        await withService(start(), async (sessions) => {
          const environment_id = await sessions.createEnvironment({
            setup_script: `git ls-remote ${at('git')}/public.git HEAD >/etc/seen`,
          });
          const stream = await sessions.run(
            `cut -f2 /etc/seen; curl -sSf ${at('nexus')}/juggling >/dev/null && echo reached`,
            { environment_id },
          );
          expect(stream.output()).toBe('HEAD\nreached\n');
        });
      },
      ROOTFS_TIMEOUT_MS,
    );

    it('is trusted by programs without isolation', async () => {
      const dataDir = await mkdtemp(join(tmpdir(), 'degraded-'));
      await chmod(dataDir, 0o711);
      const started = start({ SANDBOX_ISOLATION: 'degraded' }, { dataDir });
      await withService(started, async (sessions) => {
        const stream = await sessions.run(`git ls-remote ${at('git')}/public.git HEAD | cut -f2`);
        expect(stream.output()).toBe('HEAD\n');
      });
      await rm(dataDir, { recursive: true });
    });

    it('reaches names below a pattern, but not this machine', async () => {
      const proxy = await proxyWith(PASSWORD);
      await withService(start({ EGRESS_PROXY: proxy.href }), async (sessions) => {
        const stream = await sessions.run(
          knock(
            `https://app.svc.corp.example:${ports.neighbour}`,
            `https://own.svc.corp.example:${ports.neighbour}`,
          ),
        );
        expect(stream.output()).toBe('reached\nclosed\n');
      });
    });

    it("uses the host's proxy and the host's exceptions", async () => {
      const proxy = await proxyWith(PASSWORD);
      const env = {
        EGRESS_PROXY: undefined,
        HTTPS_PROXY: proxy.href,
        NO_PROXY: 'nexus.corp.example',
      };
      await withService(start(env), async (sessions, service) => {
        company.proxied.length = 0;
        const stream = await sessions.run(
          knock(`${at('git')}/public.git/HEAD`, `${at('nexus')}/juggling`),
        );
        expect(stream.output()).toBe('reached\nreached\n');
        expect(company.proxied).toEqual([`${company.address}:${ports.git}`]);
        expect(stream.frames.join('\n') + service.logs()).not.toContain(PASSWORD);
      });
    });

    it.each(['EGRESS_PROXY', 'HTTPS_PROXY'])(
      'says that the proxy does not accept the password of %s',
      async (setting) => {
        const proxy = await proxyWith('another-passw0rd');
        await withService(
          start({ EGRESS_PROXY: undefined, [setting]: proxy.href }),
          async (sessions, service) => {
            const words = `the proxy 127.0.0.1:${proxy.port} does not accept the user name and password of ${setting} (407)`;
            const stream = await sessions.run('echo never', { resources: [repository()] });
            const { message = '' } = stream.events.find(({ state }) => state === 'failed') ?? {};
            expect(message).toContain(words);
            await sessions.run(knock(`${at('nexus')}/juggling`));
            await eventually(() => service.logs().includes(words), 'the refusal in the log');
            const log = await readFile(join(service.dataDir, 'gateway/log'), 'utf8');
            expect(log).toContain(JSON.stringify({ event: 'proxy', message: words }).slice(1));
            expect(message + service.logs() + log).not.toContain('another-passw0rd');
          },
        );
      },
    );

    it.each([
      [{ EGRESS_PRIVATE_HOSTS: '10.0.0.0/8' }, 'EGRESS_PRIVATE_HOSTS: "10.0.0.0/8" is an address'],
      [{ SANDBOX_CA_FILE: '/nowhere/ca.pem' }, 'SANDBOX_CA_FILE: cannot read /nowhere/ca.pem'],
      [{ EGRESS_PROXY: 'socks://proxy' }, 'EGRESS_PROXY: must be a URL'],
    ])('does not start with %j', async (env, line) => {
      await expect(start(env)).rejects.toThrow(line);
    });
  },
);
