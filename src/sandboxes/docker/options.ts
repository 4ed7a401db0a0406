import type { Gateway } from '../shared/relay/gateways.js';
import type { SandboxLimits, SandboxLogger } from '../shared/sandbox-options.js';

/** How the engine is reached. */
export interface EngineAddress {
  /** `unix:///path`, `tcp://host:port`, `http://…` or `https://…`. */
  host: string;
  /** A folder with `ca.pem`, `cert.pem` and `key.pem`: speak TLS. */
  certPath?: string;
}

export interface DockerSandboxOptions {
  engine: EngineAddress;
  /**
   * Names whose sandboxes these are: everything that one installation makes on an engine carries it, and nothing of
   * another's is ever touched. Asked for when it is needed first.
   */
  installation: () => Promise<string>;
  /** The image that sandboxes are made of. It has to be on the engine. */
  image: string;
  /** The engine's runtime for sandboxes; `undefined`: the engine's default. */
  runtime?: string;
  /** Processors; may be a fraction. `undefined`: all there are. */
  cpus?: number;
  limits: SandboxLimits;
  gateways: readonly Gateway[];
  /** The network of the one container that dials for all sandboxes. Default: the engine's host's. */
  egressNetwork?: string;
  /** Images with installed software that are kept. */
  cache: { images: number; seconds: number };
  logger?: SandboxLogger;
}
