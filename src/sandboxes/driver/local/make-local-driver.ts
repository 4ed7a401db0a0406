import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { readOrCreate } from '../../../common/files.js';
import type { SharedGatewayConfig } from '../../../gateway/gateway-config.js';
import { GatewayKeeper } from '../../../gateway/gateway-keeper.js';
import { LocalSandboxDriver } from './local-sandbox-driver.js';
import type { LocalSandboxOptions } from './options.js';
import {
  type ConfiguredLimits,
  sandboxLimits,
  type SandboxLogger,
} from '../../../supervisor/sandbox-options.js';
import { ensureTools } from './tools/ensure-tools.js';

/** The gateway exits when neither a service nor a sandbox has been connected for this long. */
const GATEWAY_IDLE_MS = 2_000;
/** The gateway runs as this user if the service is root. */
const NOBODY = 65_534;

/** The local driver as the service uses it. */
export async function makeLocalDriver(
  options: Pick<
    LocalSandboxOptions,
    | 'stateDir'
    | 'isolation'
    | 'cpus'
    | 'layers'
    | 'buildLimitMs'
    | 'gateways'
    | 'network'
    | 'logger'
    | 'unknownStates'
    | 'npmEnv'
  > & {
    /** The folder of the gateway's socket and log. */
    gatewayDir: string;
    gatewayConfig: SharedGatewayConfig;
    /** What sandboxes share and can be made again: the root file system template, tools, programs. */
    cacheDir: string;
    limits: ConfiguredLimits;
  },
): Promise<LocalSandboxDriver> {
  const { cacheDir, limits, gatewayDir, gatewayConfig, ...rest } = options;
  return new LocalSandboxDriver({
    ...rest,
    // A command has no keys. Its gateway would take the place of the service's own.
    ...(gatewayConfig.grantKeys.length > 0 && {
      gateway: await gatewayIn(gatewayDir, gatewayConfig, options),
    }),
    toolsDir: await toolsIn(cacheDir, options.logger),
    limits: sandboxLimits(limits),
    programsDir: join(cacheDir, 'programs'),
    rootfsDir: join(cacheDir, 'rootfs'),
  });
}

/** Sandboxes without a relay reach the gateway at a port of this machine, which stays the same. */
async function gatewayIn(
  folder: string,
  shared: SharedGatewayConfig,
  { isolation, logger }: Pick<LocalSandboxOptions, 'isolation' | 'logger'>,
): Promise<GatewayKeeper> {
  const host = '127.0.0.1';
  const port = async (): Promise<number> => {
    const free = await freePort(host);
    return Number(await readOrCreate(join(folder, 'port'), () => String(free)));
  };
  return new GatewayKeeper({
    folder,
    config: {
      ...shared,
      idleMs: GATEWAY_IDLE_MS,
      user: process.geteuid?.() === 0 ? NOBODY : null,
      ...(isolation === 'degraded' && { listen: { host, port: await port() } }),
    },
    logger,
  });
}

async function freePort(host: string): Promise<number> {
  const server = createServer().listen(0, host);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Node and npm for sandboxes. Without them a sandbox has what the host has, which is no reason not to start. */
async function toolsIn(cacheDir: string, logger?: SandboxLogger): Promise<string | undefined> {
  try {
    return (await ensureTools({ dir: join(cacheDir, 'tools') })).path;
  } catch (error) {
    logger?.warn(`Sandboxes go without Node and npm of their own: ${String(error)}`);
    return undefined;
  }
}
