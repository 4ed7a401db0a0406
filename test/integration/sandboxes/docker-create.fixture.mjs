/** Creates a sandbox after the other until it is killed. Arguments: the compiled driver's module, its options, its name. */
const [, , module, options, name] = process.argv;
const { randomUUID } = await import('node:crypto');
const { DockerSandboxDriver } = await import(module);
const driver = new DockerSandboxDriver({
  ...JSON.parse(options),
  installation: () => Promise.resolve(name),
});
const { signal } = new AbortController();
process.send('ready');
for (;;) {
  const network = { mode: 'unrestricted', allowedHosts: [] };
  await driver.create({ sandboxId: randomUUID(), writableRoot: false, network, signal });
}
