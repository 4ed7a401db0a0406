import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import {
  Injectable,
  Logger,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  Global,
  Module,
} from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Metrics } from './metrics.js';

/** Serves `GET /metrics` on a separate port, without a token. Does nothing unless METRICS_PORT is set. */
@Injectable()
export class MetricsServer implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger('Metrics');
  private server: Server | undefined;

  constructor(
    private readonly metrics: Metrics,
    private readonly config: AppConfig,
  ) {}

  async onApplicationBootstrap(): Promise<void> {
    const { metricsPort, host } = this.config;
    if (metricsPort === undefined) return;
    const server = createServer((request, response) => {
      const path = request.url?.split('?', 1)[0];
      if (path !== '/metrics') refuse(response, 404, 'Not found');
      else if (request.method !== 'GET') refuse(response, 405, 'Method not allowed');
      else void this.answer(response);
    });
    this.server = server;
    server.listen(metricsPort, host);
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : metricsPort;
    this.logger.log(`Metrics on http://${host}:${port}/metrics`);
  }

  onApplicationShutdown(): void {
    this.server?.close();
    this.server?.closeAllConnections();
  }

  private async answer(response: ServerResponse): Promise<void> {
    const text = await this.metrics.text();
    response.writeHead(200, { 'content-type': this.metrics.contentType }).end(text);
  }
}

function refuse(response: ServerResponse, status: number, detail: string): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' });
  response.end(JSON.stringify({ detail }));
}

@Global()
@Module({ providers: [Metrics, MetricsServer], exports: [Metrics] })
export class MetricsModule {}
