/** One listening socket to create in a sandbox's network namespace. */
export interface ListenerSpec {
  /** `dns` is a UDP socket, `dns-tcp` and `relay` are TCP listeners. */
  role: 'dns' | 'dns-tcp' | 'relay';
  address: string;
  port: number;
  /** Continue if it cannot be bound, such as `::1` on a machine without IPv6. */
  optional?: boolean;
}

/** What the program in the namespace sends with each handle, or without one if it could not bind. */
export interface ListenerMessage {
  kind: 'listener';
  /** Index into the plan. */
  index: number;
  skipped?: boolean;
}

/** The acknowledgement of the adopting process when it has every handle. */
export interface AdoptedMessage {
  kind: 'adopted';
}

/** The name server in a sandbox's resolv.conf. */
export const NAMESERVER = '127.0.0.53';

/** Where programs in a sandbox reach the gateway's broker. Agent programs accept plain HTTP only at this address. */
export const BROKER = { address: '127.0.0.1', port: 80, url: 'http://127.0.0.1' } as const;

/** The TCP ports on which any allowed name can be reached. */
export const SERVED_PORTS: readonly number[] = [80, 443, 22];

/** The sockets of every sandbox. One listener on 0.0.0.0 covers all addresses of 127.0.0.0/8. */
export const COMMON_LISTENERS: readonly ListenerSpec[] = [
  { role: 'dns', address: NAMESERVER, port: 53 },
  { role: 'dns-tcp', address: NAMESERVER, port: 53 },
  ...SERVED_PORTS.map((port): ListenerSpec => ({ role: 'relay', address: '0.0.0.0', port })),
];
