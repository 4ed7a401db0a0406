/** An address that sandboxes must not reach. */
export interface ForbiddenAddress {
  host: string;
  port: number;
}

/** The argument of the program `prepare.ts`. */
export interface Preparation {
  /** Connections to these must fail. The API server of the pod's own environment is one of them, too. */
  forbidden: readonly ForbiddenAddress[];
  /** Where our programs are copied to. */
  programs: string;
  /** The root of the sandbox's volume, and the folders that are made there. */
  volume: string;
  folders: readonly { name: string; mode: number }[];
}

/** The exit code if the network is open. */
export const OPEN_NETWORK = 70;
