/** Where the server listens, seen from its data folder: nobody but its user can enter there. */
export const SOCKET_PORT = 5432;
export const SOCKET_NAME = `.s.PGSQL.${SOCKET_PORT}`;

/** `full` survives a power cut; `none` is for tests, whose data nobody misses. */
export type Durability = 'full' | 'none';

/**
 * The server's settings as name and value. They are given on the command line, where they win over
 * whatever stands in the data folder, so that every start runs with the settings of this release.
 */
export function serverSettings(tag: string, durability: Durability): Record<string, string> {
  const sync = durability === 'full' ? 'on' : 'off';
  return {
    cluster_name: tag,
    listen_addresses: '',
    unix_socket_directories: '.',
    port: String(SOCKET_PORT),
    password_encryption: 'scram-sha-256',
    max_connections: '200',
    shared_buffers: '128MB',
    max_wal_size: '512MB',
    min_wal_size: '80MB',
    fsync: sync,
    synchronous_commit: sync,
    full_page_writes: sync,
    huge_pages: 'off',
    // A container's /dev/shm is often 64 MB; files in the data folder have no such bound.
    dynamic_shared_memory_type: 'mmap',
    max_parallel_workers_per_gather: '0',
    max_logical_replication_workers: '0',
    timezone: 'UTC',
    log_timezone: 'UTC',
    // Failed statements reach the service, which reports them; here they would put clients' data
    // into a file. What remains is what the server says of itself.
    log_min_messages: 'log',
    log_min_error_statement: 'panic',
    log_error_verbosity: 'terse',
    log_checkpoints: 'off',
    log_destination: 'stderr',
    logging_collector: 'off',
  };
}
