import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { Timestamp } from '../../common/openapi/decorators.js';
import type { FileEntry } from '../../supervisor/files/file-access.js';

const TYPES: FileEntry['type'][] = ['file', 'directory', 'symlink', 'other'];

// Generators call the type of binary bodies `File` in several languages, so the name is taken.
@ApiSchema({
  name: 'SessionFile',
  description: "A file in a session's sandbox, or another entry of a folder.",
})
export class FileObject {
  /** Links are not followed here. Pipes, sockets and devices are `other`. */
  @ApiProperty({ enum: TYPES, enumName: 'FileType' })
  type!: FileEntry['type'];

  /**
   * Relative to the workspace, or absolute in the home. Bytes of names that are not UTF-8 are shown as U+FFFD; such files
   * can only be downloaded in an archive.
   * @example "src/main.ts"
   */
  path!: string;

  /** The bytes of a file; 0 for everything else. */
  @ApiProperty({ type: 'integer', format: 'int64', minimum: 0, example: 1024 })
  size!: number;

  /**
   * The permissions in octal notation.
   * @example "0644"
   */
  mode!: string;

  @Timestamp()
  modified_at!: string;
}

@ApiSchema({ name: 'FileList', description: "A page of a folder's entries." })
export class FileList {
  data!: FileObject[];
  /** Are there entries after these? */
  has_more!: boolean;
}

/** An entry as clients see it. */
export function presentFile(entry: FileEntry & { path: string }): FileObject {
  return {
    type: entry.type,
    path: entry.path,
    size: entry.size,
    mode: entry.mode.toString(8).padStart(4, '0'),
    modified_at: entry.modifiedAt.toISOString(),
  };
}
