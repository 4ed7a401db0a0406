import { get } from 'node:http';

/** Whether the engine at `DOCKER_HOST`, a unix socket, answers. */
export function engineAnswers() {
  const host = process.env.DOCKER_HOST ?? 'unix:///var/run/docker.sock';
  const socketPath = host.replace(/^unix:\/\//, '');
  return new Promise((resolve) => {
    get({ socketPath, path: '/_ping', timeout: 5000 }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    })
      .on('timeout', () => resolve(false))
      .on('error', () => resolve(false));
  });
}
