import { StepError, prepare } from './lib/project.mjs';
import { runService } from './lib/service-process.mjs';
import { complain, say } from './lib/output.mjs';
import { ensureSystemPackages } from './lib/system-packages.mjs';

try {
  // These packages include the compiler that the build needs, so they are installed first.
  ensureSystemPackages(say);
  prepare(say);
  // Beside the start: so that the first session does not have to wait for the base system.
  process.env.PREPARE_SANDBOXES ??= 'on';
  process.exitCode = await runService();
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
}
// The channel to a service that left something running must not keep this alive.
process.exit();
