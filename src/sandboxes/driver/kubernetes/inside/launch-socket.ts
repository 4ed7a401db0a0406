import { join } from 'node:path';

/** The socket at which the supervisors of launches reach the shim. @param sockets the folder for sockets */
export const launchSocket = (sockets: string): string => join(sockets, 'launches');
