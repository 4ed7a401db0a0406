/** One listening socket to make inside a sandbox's network namespace. */
export interface ListenerSpec {
  /** `dns` is a UDP socket, `dns-tcp` and `relay` are TCP listeners. */
  role: 'dns' | 'dns-tcp' | 'relay';
  address: string;
  port: number;
  /** Go on without it where it cannot be bound, as `::1` on a machine without IPv6. */
  optional?: boolean;
}

/** What the process inside the namespace sends with each handle, or in place of one that it could not bind. */
export interface ListenerMessage {
  kind: 'listener';
  /** Index into the plan. */
  index: number;
  skipped?: boolean;
}

/** What the adopting process answers when it has every handle. */
export interface AdoptedMessage {
  kind: 'adopted';
}

/** The name server that a sandbox's resolv.conf has to name. */
export const NAMESERVER = '127.0.0.53';

/** The TCP ports on which any allowed name can be reached. */
export const SERVED_PORTS: readonly number[] = [80, 443, 22];

/** The sockets that every sandbox has. One listener on 0.0.0.0 takes every address of 127.0.0.0/8. */
export const COMMON_LISTENERS: readonly ListenerSpec[] = [
  { role: 'dns', address: NAMESERVER, port: 53 },
  { role: 'dns-tcp', address: NAMESERVER, port: 53 },
  ...SERVED_PORTS.map((port): ListenerSpec => ({ role: 'relay', address: '0.0.0.0', port })),
];
