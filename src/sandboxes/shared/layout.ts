/** The agent's ids inside every sandbox that has a system of its own. */
export const AGENT_ID = 1000;
export const HOME = '/home/agent';
export const WORKSPACE = '/workspace';
export const HOST_NAME = 'sandbox';

/** The search path of the system, inside of sandboxes and for what drivers start on the host. */
export const SYSTEM_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
