/** Whether services of this test file take their sandboxes from an engine. */
export const onDocker = (): boolean => process.env['SANDBOX_DRIVER'] === 'docker';

/** Whether they take them from a fake of the Sprites interface. */
export const onSprites = (): boolean => process.env['SANDBOX_DRIVER'] === 'sprites';
