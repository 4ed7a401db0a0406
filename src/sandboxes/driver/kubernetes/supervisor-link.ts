import type { Duplex } from 'node:stream';
import { CallConnection, ConnectionLost } from '../../../supervisor/protocol/call-client.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { GatewayLink } from '../../../supervisor/relay/relay-thread.js';
import type { NetworkPolicy } from '../sandbox-driver.js';
import type { Arrangement } from './inside/arrangement.js';
import { addressesOf } from './network-policy.js';
import type { KubernetesOptions } from './options.js';
import type { Pods } from './pods.js';

const CONNECT_LIMIT_MS = 180_000;

/** Connections to the supervisors of pods. Each begins with what the pod needs and cannot store. */
export class SupervisorLink {
  constructor(
    private readonly pods: Pods,
    private readonly options: Pick<KubernetesOptions, 'gateway' | 'gateways' | 'privateHosts'>,
  ) {}

  /** Connects to the supervisor of a sandbox, and starts its pod for that. */
  connect(sandboxId: string): Promise<Duplex> {
    return this.open(sandboxId, undefined, AbortSignal.timeout(CONNECT_LIMIT_MS));
  }

  /** Sets the network policy of a sandbox. Resolves when it is in force. */
  async arrange(sandboxId: string, network: NetworkPolicy, signal: AbortSignal): Promise<void> {
    const connection = new CallConnection(await this.open(sandboxId, network, signal));
    try {
      // Any call is answered once the supervisor has applied the policy.
      const input = Buffer.from(JSON.stringify({ names: [], environment: {} }));
      const call = { name: 'hasPrograms', parameters: {}, input, signal };
      for await (const _item of connection.call(call)) break;
    } catch (error) {
      if (!(error instanceof ConnectionLost)) throw error;
      const message = 'the pod does not apply the network policy: see the log of its supervisor';
      throw new SandboxError('unavailable', message, { cause: error });
    } finally {
      connection.close();
    }
  }

  private async open(
    sandboxId: string,
    network: NetworkPolicy | undefined,
    signal: AbortSignal,
  ): Promise<Duplex> {
    const { gateways = [], privateHosts = [] } = this.options;
    const [stream, link] = await Promise.all([
      this.pods.connect(sandboxId, signal),
      this.link(sandboxId),
    ]);
    const arrangement: Arrangement = { link, gateways, privateHosts, network };
    stream.write(`${JSON.stringify(arrangement)}\n`);
    return stream;
  }

  /** In a pod no name can be resolved but by its relay, so the link has the gateway's address. */
  private async link(sandboxId: string): Promise<GatewayLink | undefined> {
    const remote = this.options.gateway?.remote;
    if (remote === undefined) return undefined;
    const link = remote.linkOf(sandboxId);
    const [address] = await addressesOf(new URL(link.url));
    return { address: { ...link, address }, sandboxId };
  }
}
