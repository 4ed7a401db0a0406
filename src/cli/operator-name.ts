import { hostname, userInfo } from 'node:os';

/** Who calls, for the audit log: `alice@host`, or `alice(root)@host` where sudo says who became root. */
export function operatorName(sudoUser: string | undefined): string {
  const account = accountName();
  const who = sudoUser === undefined || sudoUser === '' ? account : `${sudoUser}(${account})`;
  return `${who}@${hostname()}`;
}

/** An account without a name, as containers have them, has a number. */
function accountName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.geteuid?.() ?? '?'}`;
  }
}
