import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { CompanyNetwork } from '../support/company-network.js';
import { describeWith } from '../support/requirements.js';
import { answerMcp } from './mcp-server.js';
import { CLIS, describeCli, installMissing } from './support/clis.js';
import { HTTP_SECRET, mcpRoutes } from './support/mcp-servers.js';
import { Rig, type RunningSession } from './support/rig.js';

const NAME = 'tools.corp.example';
const PASSWORD = 'proxy-passw0rd/0123456789';
/** A first session may have to install hundreds of megabytes. */
const INSTALL_LIMIT_MS = 300_000;

describeWith(['root', 'mount namespaces'], 'agent programs', () => {
  let company: CompanyNetwork;
  let tools: Server;
  let port: number;
  let rig: Rig;
  const sessions: RunningSession[] = [];

  beforeAll(async () => {
    await installMissing();
    company = await CompanyNetwork.start([NAME]);
    company.addresses.set(NAME, [company.address]);
    const routes = mcpRoutes();
    tools = createServer((request, response) => {
      if (request.url !== '/open') return void (routes(request, response) || response.destroy());
      if (request.method !== 'POST') return void response.writeHead(405).end();
      // A tool server of the company that anybody in its network may use.
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const message = JSON.parse(String(Buffer.concat(chunks))) as Parameters<
          typeof answerMcp
        >[0];
        const answer = answerMcp(message, undefined);
        if (answer === undefined) return void response.writeHead(202).end();
        response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
      });
    });
    await once(tools.listen(0, '127.0.0.1'), 'listening');
    port = await company.publish((tools.address() as AddressInfo).port);
    const proxy = await company.startProxy('http', PASSWORD);
    proxy.username = 'user';
    proxy.password = PASSWORD;
    rig = await Rig.start(
      {
        EGRESS_PRIVATE_HOSTS: `${NAME}:${port}`,
        EGRESS_PROXY: proxy.href,
        SANDBOX_CA_FILE: company.authority,
      },
      company.through,
    );
  }, CLIS.length * INSTALL_LIMIT_MS);

  afterAll(async () => {
    for (const session of sessions) await rig.remove(session);
    await rig.stop();
    tools.closeAllConnections();
    await new Promise((closed) => tools.close(closed));
    await company.stop();
  });

  for (const cli of CLIS) {
    describeCli(cli, () => {
      it.each(['unrestricted', 'limited'])(
        "call a company's tools, with and without a secret, in the network %s",
        async (type) => {
          const url = `https://${NAME}:${port}`;
          const headers = { authorization: `Bearer ${HTTP_SECRET}` };
          const session = await rig.session(
            {
              provider: cli.provider,
              model: cli.model,
              mcp_servers: [
                { type: 'http', name: 'closed', url: `${url}/mcp`, headers },
                { type: 'http', name: 'open', url: `${url}/open` },
              ],
            },
            ['%%mcp closed echo {"text":"with"}%%', '%%mcp open echo {"text":"without"}%%'].join(
              '\n',
            ),
            {
              environment: {
                networking: { type, ...(type === 'limited' && { allow_mcp_servers: true }) },
              },
            },
          );
          sessions.push(session);
          const { output, terminal } = await rig.finish(session);
          expect(terminal).toMatchObject({ type: 'exit', code: 0 });
          expect(output).toContain(`echo with with a secret of ${HTTP_SECRET.length} characters`);
          expect(output).toContain('echo without with a secret of no characters');
          expect(company.proxied).toContain(`${company.address}:${port}`);
        },
        INSTALL_LIMIT_MS,
      );
    });
  }
});
