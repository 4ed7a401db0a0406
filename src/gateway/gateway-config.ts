import type { EgressNetwork } from '../common/egress-network.js';
import { endpointOf } from './egress/address-policy.js';

/** What a gateway is started with, as JSON on standard input or in environment variables. Holds the keys of grants. */
export interface GatewayConfig {
  /** Absolute path. A gateway that starts takes the place of the one that serves it. */
  socket: string;
  /** Identifies the program and this configuration. The gateway names it in its answer to `hold`. */
  version: string;
  /** The keys of grants, 32 bytes each in base64url; the first one seals. */
  grantKeys: readonly string[];
  /** Addresses that the operator has configured, as `host:port`; they may be private. */
  trusted: readonly string[];
  /** The operator's network. Default: only public addresses, without a proxy. */
  network?: EgressNetwork;
  /** The gateway exits when nothing was connected for this long. Milliseconds. */
  idleMs: number;
  /** The log's file, absolute, see LogFile. Default: standard output. */
  logFile?: string;
  /** The user and group to change to when the socket is open; `null`: no change. */
  user: number | null;
  /** A second address of the broker. Sandboxes without a relay connect to it instead of the socket. */
  listen?: { host: string; port: number };
}

/** The part of the configuration that does not depend on where the gateway runs. */
export type SharedGatewayConfig = Pick<GatewayConfig, 'grantKeys' | 'trusted' | 'network'>;

/** @param options.gateways the addresses that the operator has configured in place of model providers' own */
export function sharedGatewayConfig(options: {
  grantKeys: readonly string[];
  gateways: readonly { host: string; port: number }[];
  network: EgressNetwork;
}): SharedGatewayConfig {
  return {
    grantKeys: options.grantKeys,
    network: options.network,
    trusted: options.gateways.map(({ host, port }) => endpointOf(host, port)),
  };
}

const VARIABLE = 'GATEWAY_CONFIG';
/** Linux limits a variable to 128 KiB, and a list of certificates may be longer. A character has up to four bytes. */
const PARTS = /.{1,30000}/gsu;

/** Environment variables with a configuration, for {@link configFrom}. */
export function configVariables(config: GatewayConfig): Record<string, string> {
  const parts = JSON.stringify(config).match(PARTS) ?? [];
  return Object.fromEntries(parts.map((part, i) => [variable(i), part]));
}

/** The JSON of a configuration from environment variables; `undefined` if there is none. */
export function configFrom(env: Readonly<Record<string, string | undefined>>): string | undefined {
  let text = '';
  for (let i = 0; env[variable(i)] !== undefined; i += 1) text += env[variable(i)] ?? '';
  return text === '' ? undefined : text;
}

function variable(index: number): string {
  return index === 0 ? VARIABLE : `${VARIABLE}_${index + 1}`;
}
