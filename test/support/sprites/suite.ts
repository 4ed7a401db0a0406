import { hostname } from 'node:os';
import { join } from 'node:path';
import { SpriteNames } from '../../../src/sandboxes/driver/sprites/options.js';
import type { NetworkGatewayProcess } from '../../integration/gateway/network-gateway.js';
import { commandOf } from '../sandbox-processes.js';
import type { SandboxContents } from '../planted-secrets.js';
import type { FakeSprites } from './fake-sprites.js';
import type { Sprite } from './sprite.js';

/** The supervisor of a launch. The one that answers workers names it, too, and runs for as long as the sprite does. */
const SUPERVISOR = 'supervisor/main.js';
const DAEMON = 'supervisor/daemon.js';

let fake: FakeSprites | undefined;
let gateway: NetworkGatewayProcess | undefined;

/** The name of this host, which sprites of a test file resolve. */
export const nameOfHost = (): string => hostname().toLowerCase();

/** Called with the fake that services of this test file use, and the gateway that its sprites reach. */
export function runsOn(sprites: FakeSprites, reached: NetworkGatewayProcess): void {
  fake = sprites;
  gateway = reached;
}

/** The fake that services of this test file use. @throws Error if they run elsewhere */
export function suiteFake(): FakeSprites {
  if (fake === undefined) throw new Error('this test file does not run on sprites');
  return fake;
}

/**
 * Gives the gateway of this test file the same addresses of model providers as its service has, such as
 * `OPENAI_BASE_URL`. It connects to private addresses only if they are configured.
 */
export async function configureGateway(env: Record<string, string>): Promise<void> {
  await gateway?.restart(env);
}

/** The sprites of an installation. */
export function spritesOf(installation: string): Sprite[] {
  const { start } = new SpriteNames('session', installation);
  return [...(fake?.sprites.values() ?? [])].filter(({ name }) => name.startsWith(start));
}

/** The supervisors of turns and scripts that run in sprites, as this host numbers them. */
export function spriteSupervisors(installation: string): { pid: number; command: string }[] {
  return spritesOf(installation)
    .flatMap(({ machine }) => machine.processes())
    .map((pid) => ({ pid, command: commandOf(pid) }))
    .filter(({ command }) => command.includes(SUPERVISOR) && !command.includes(DAEMON));
}

/** What of a machine's files agents and supervisors have written: not the programs that were installed in it. */
const WRITTEN = [
  'own',
  'upper/workspace',
  'upper/.agent-session/launches',
  'upper/.agent-session/tmp',
];

/** The files and processes of an installation's sandboxes. */
export function contentsOfSprites(installation: string): SandboxContents {
  const machines = spritesOf(installation).map(({ machine }) => machine);
  return {
    folders: machines.flatMap(({ folder }) => WRITTEN.map((part) => join(folder, part))),
    pids: machines.flatMap((machine) => machine.processes()),
  };
}
