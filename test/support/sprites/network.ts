import { HOST_ITSELF, NameServer, allows, type Rule } from './name-server.js';
import { Uplink } from './uplink.js';

/** What sprites reach, by the rules of their network policies: names, this host, and hosts that a test connects. */
export class SpritesNetwork {
  readonly names = new NameServer();
  private readonly hosts = new Set<string>();
  private readonly uplinks = new Map<string, Uplink>();

  /** Lets sprites reach a host by name. */
  connectTo(host: string): void {
    this.hosts.add(host);
    this.names.addresses.set(host, HOST_ITSELF);
  }

  /** Serves a sprite at its address of this host, which exists by now. */
  async serve(sprite: string, address: string, rules: () => readonly Rule[]): Promise<void> {
    await this.names.serve(sprite, address, rules);
    if (this.hosts.size === 0 || this.uplinks.has(sprite)) return;
    const allowed = () => [...this.hosts].filter((host) => allows(rules(), host));
    const uplink = new Uplink(allowed);
    this.uplinks.set(sprite, uplink);
    await uplink.listen(address);
  }

  forget(sprite: string): void {
    this.names.forget(sprite);
    this.uplinks.get(sprite)?.close();
    this.uplinks.delete(sprite);
  }

  async stop(): Promise<void> {
    for (const sprite of [...this.uplinks.keys()]) this.forget(sprite);
    await this.names.stop();
  }
}
