import { readdirSync, readFileSync, openSync, readSync, closeSync, lstatSync } from 'node:fs';
import { join } from 'node:path';
import { commandOf } from './sandbox-processes.js';

/** All that the sandboxes of a service have on this machine. */
export interface SandboxContents {
  folders: readonly string[];
  pids: readonly number[];
}

const CHUNK = 4 * 2 ** 20;

/** The forms in which a secret may be written down. */
export function formsOf(secret: string): Buffer[] {
  const plain = Buffer.from(secret);
  // Base64 depends on where the text begins; without its ends, all of it is the secret's own.
  const encoded = [0, 1, 2].map((shift) =>
    Buffer.concat([Buffer.alloc(shift, ' '), plain])
      .toString('base64')
      .slice(shift === 0 ? 0 : 4, -4),
  );
  const texts = [
    secret,
    encodeURIComponent(secret),
    ...encoded,
    ...encoded.map((text) => text.replaceAll('+', '-').replaceAll('/', '_')),
  ];
  return [...new Set(texts)].map((text) => Buffer.from(text));
}

/**
 * Looks for secrets in everything that a service's sandboxes have, as root of the host: all files, and environment,
 * arguments and writable memory of the processes, supervisors included.
 * @param inside see `contentsOf`
 * @returns where something was found, and what was looked at
 */
export function findPlanted(
  inside: SandboxContents,
  secrets: readonly string[],
): { found: string[]; files: number; processes: string[] } {
  const needles = secrets.flatMap(formsOf);
  const found: string[] = [];
  let files = 0;
  const look = (where: string, bytes: Buffer): void => {
    if (needles.some((needle) => bytes.includes(needle))) found.push(where);
  };
  for (const path of inside.folders.flatMap(filesBelow)) {
    files += 1;
    try {
      look(path, readFileSync(path));
    } catch {
      // It was removed in the meantime, or is no plain file.
    }
  }
  for (const pid of inside.pids) {
    for (const part of ['environ', 'cmdline']) {
      try {
        look(`${part} of ${commandOf(pid)}`, readFileSync(`/proc/${pid}/${part}`));
      } catch {
        // It has ended.
      }
    }
    if (inMemory(pid, needles)) found.push(`memory of ${commandOf(pid)}`);
  }
  return { found, files, processes: inside.pids.map(commandOf) };
}

function filesBelow(folder: string): string[] {
  try {
    return readdirSync(folder).flatMap((name) => {
      const path = join(folder, name);
      const state = lstatSync(path, { throwIfNoEntry: false });
      if (state?.isDirectory()) return filesBelow(path);
      return state?.isFile() ? [path] : [];
    });
  } catch {
    return [];
  }
}

/** Reads the writable memory of a process. Needs root. */
function inMemory(pid: number, needles: readonly Buffer[]): boolean {
  let memory: number;
  let maps: string;
  try {
    maps = readFileSync(`/proc/${pid}/maps`, 'utf8');
    memory = openSync(`/proc/${pid}/mem`, 'r');
  } catch {
    return false;
  }
  try {
    const longest = Math.max(...needles.map(({ length }) => length));
    for (const [, from = '', to = ''] of maps.matchAll(/^([0-9a-f]+)-([0-9a-f]+) rw/gm)) {
      for (let at = Number.parseInt(from, 16); at < Number.parseInt(to, 16); at += CHUNK) {
        const size = Math.min(CHUNK + longest, Number.parseInt(to, 16) - at);
        const bytes = Buffer.alloc(size);
        try {
          const read = readSync(memory, bytes, 0, size, at);
          if (needles.some((needle) => bytes.subarray(0, read).includes(needle))) return true;
        } catch {
          // Reserved, but not there.
        }
      }
    }
    return false;
  } finally {
    closeSync(memory);
  }
}
