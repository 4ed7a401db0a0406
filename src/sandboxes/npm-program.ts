/** A program that comes out of the npm registry, at one exact version. */
export interface NpmProgram {
  /** What it is called on the PATH. */
  bin: string;
  package: string;
  version: string;
  /**
   * The file to run, below `node_modules`: the first of these that is there. `{arch}` stands for the processor as Node
   * names it. Install scripts are never run, so this names what a package has such a script put in place.
   */
  entries: readonly string[];
}

/** The package as npm and people write it. */
export function packageSpec(program: Pick<NpmProgram, 'package' | 'version'>): string {
  return `${program.package}@${program.version}`;
}
