/** Says one line to the person at the terminal. */
export const say = (line) => process.stdout.write(`${line}\n`);

/** The same on standard error: for failures, and where standard output belongs to a command. */
export const complain = (line) => process.stderr.write(`${line}\n`);
