import { beforeAll } from '@jest/globals';
import { NetworkGatewayProcess } from '../integration/gateway/network-gateway.js';
import { FakeSprites } from './sprites/fake-sprites.js';
import { HOST_ITSELF } from './sprites/name-server.js';
import { nameOfHost, runsOn } from './sprites/suite.js';

/**
 * For a project whose files run over sprites: services of this file take their sandboxes from a fake of its own, and
 * these reach a gateway of its own.
 */
process.env['SANDBOX_DRIVER'] = 'sprites';
const fake = new FakeSprites();
let gateway: NetworkGatewayProcess | undefined;

beforeAll(async () => {
  await fake.start();
  gateway = await NetworkGatewayProcess.start({
    HOST: '0.0.0.0',
    SANDBOX_DRIVER: undefined,
    EGRESS_PROXY: 'off',
  });
  // A name for this host that workers and sprites resolve, each to an address where they reach it.
  const name = nameOfHost();
  fake.names.addresses.set(name, HOST_ITSELF);
  process.env['SPRITES_TOKEN'] = fake.token;
  process.env['SPRITES_BASE_URL'] = fake.url;
  process.env['GATEWAY_URL'] = `http://${name}:${gateway.port}`;
  runsOn(fake, gateway);
}, 120_000);

// The environment of the tests calls it once the hooks of the file have run.
Object.assign(globalThis, {
  afterTestFile: async () => {
    await gateway?.stop();
    await fake.stop();
  },
});
