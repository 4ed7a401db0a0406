/** Whether services of this test file take their sandboxes from an engine. */
export const onDocker = (): boolean => process.env['SANDBOX_DRIVER'] === 'docker';
