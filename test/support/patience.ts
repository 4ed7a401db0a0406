/** How long tests wait for a condition before they give up. A busy or slow machine may need more; see CONTRIBUTING.md. */
export const PATIENCE_MS = Number(process.env['TEST_PATIENCE'] ?? 120) * 1000;
