import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { Integer } from '../../common/openapi/decorators.js';
import type { RepositoryChanges } from '../changes/turn-changes.repository.js';
import { CHANGE_STATUSES, type ChangedFile } from '../changes/parse-changes.js';

const SHA = { type: String, nullable: true, example: '1f7c1b7a100d2f6c1e6a3b4f0e9c552f1f7c1b7a' };

@ApiSchema({ name: 'FileChange', description: 'A file that differs from the base.' })
export class FileChange {
  /**
   * Relative to the repository.
   * @example "src/main.ts"
   */
  path!: string;

  @ApiProperty({ enum: CHANGE_STATUSES, enumName: 'FileChangeStatus' })
  status!: ChangedFile['status'];

  /** The former path of a renamed file, else null. */
  @ApiProperty({ type: String, nullable: true })
  previous_path!: string | null;

  /** Lines; null for a binary file. */
  @Integer({ nullable: true, minimum: 0 })
  additions!: number | null;

  /** Lines; null for a binary file. */
  @Integer({ nullable: true, minimum: 0 })
  deletions!: number | null;
}

@ApiSchema({
  name: 'RepositoryChanges',
  description: 'What a session has changed in a repository.',
})
export class RepositoryChangesObject {
  /** @example "app" */
  mount_path!: string;

  /** The commit that the repository began with; null if it was empty. */
  @ApiProperty(SHA)
  base_sha!: string | null;

  /** The commit that is checked out now; null if there is none. */
  @ApiProperty(SHA)
  head_sha!: string | null;

  files!: FileChange[];
}

@ApiSchema({ name: 'ChangeList', description: 'The changes of all repositories of a session.' })
export class ChangeList {
  data!: RepositoryChangesObject[];
}

export function presentChanges(changes: RepositoryChanges): RepositoryChangesObject {
  return {
    mount_path: changes.mountPath,
    base_sha: changes.base,
    head_sha: changes.head,
    files: changes.files.map(({ path, status, previousPath, additions, deletions }) => ({
      path,
      status,
      previous_path: previousPath ?? null,
      additions,
      deletions,
    })),
  };
}
