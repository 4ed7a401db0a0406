/**
 * A process reaches the files of a sandbox on another host by an HTTP/1.1 request to a worker there, `GET /files/ID`,
 * which becomes a connection with the frames of the supervisor's protocol and its call `files`.
 */
export const FILES_UPGRADE = 'agent-session-files';
export const FILES_PATH = '/files/';
/** The request: a token. The answer: its proof. */
export const TOKEN_HEADER = 'worker-token';
export const PROOF_HEADER = 'worker-proof';
/** The answer: the folders of the sandbox, as JSON in base64url. */
export const LAYOUT_HEADER = 'sandbox-layout';
