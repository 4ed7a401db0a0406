import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, untilListening } from '../lib/ports.mjs';
import { tree } from '../lib/processes.mjs';

const MODULE = '/usr/lib/nginx/modules/ngx_nchan_module.so';

/** @returns the reason if it cannot be measured here. */
export function missing() {
  if (!existsSync(MODULE))
    return 'nginx with nchan is not installed (apt-get install nginx libnginx-mod-nchan)';
  return spawnSync('nginx', ['-v']).error ? 'nginx is not installed' : undefined;
}

/** nginx with nchan: one worker, channels in memory. */
export async function start() {
  const folder = await mkdtemp(join(tmpdir(), 'bench-nchan-'));
  const port = await freePort();
  await writeFile(
    join(folder, 'nginx.conf'),
    `load_module ${MODULE};
worker_processes 1;
daemon off;
pid ${folder}/pid;
error_log ${folder}/error.log crit;
worker_rlimit_nofile 65536;
events { worker_connections 32768; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  tcp_nodelay on;
  nchan_shared_memory_size 512m;
  server {
    listen 127.0.0.1:${port};
    location ~ ^/pub/(.+)$ {
      nchan_publisher;
      nchan_channel_id $1;
      nchan_message_buffer_length 100000;
      nchan_message_timeout 10m;
    }
    location ~ ^/sub/(.+)$ {
      nchan_subscriber eventsource;
      nchan_channel_id $1;
      nchan_subscriber_first_message oldest;
    }
  }
}
`,
  );
  const child = spawn('nginx', ['-p', folder, '-c', join(folder, 'nginx.conf')], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  await untilListening(port);
  return {
    port,
    ids: false,
    pids: () => tree(child.pid),
    publish: (channel) => `/pub/${channel}`,
    stream: (channel) => ({ port, path: `/sub/${channel}` }),
    stop,
  };
}
